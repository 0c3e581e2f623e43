#compdef lab
# Completion of the lab's command for zsh: made by ./lab completion zsh.
_lab() {
  local word about
  local -a found
  while IFS=$'\t' read -r word about; do
    found+=("${word//:/\\:}:${about}")
  done < <(LAB_COMMAND completion next "${(@)words[2,CURRENT]}" 2>/dev/null)
  if ((${#found})); then
    _describe 'what may follow' found
  else
    _files
  fi
}
compdef _lab lab
