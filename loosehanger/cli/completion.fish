# Completion of the lab's command for fish: made by ./lab completion fish.
function __lab_candidates
    set -l words (commandline -opc) (commandline -ct)
    LAB_COMMAND completion next $words[2..-1] 2>/dev/null
end
# Where nothing is known to follow, the names of files.
complete -c lab -f -n 'count (__lab_candidates) >/dev/null' -a '(__lab_candidates)'
