# Completion of the lab's command for bash: made by ./lab completion bash.
_lab() {
  local word
  COMPREPLY=()
  while IFS=$'\t' read -r word _; do
    COMPREPLY+=("${word}")
  done < <(LAB_COMMAND completion next "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
# Where nothing is known to follow, the names of files.
complete -o default -F _lab lab
