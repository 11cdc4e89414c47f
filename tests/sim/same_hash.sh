#!/usr/bin/env bash
# The same seeds twice, in two processes: nothing may depend on addresses, or on what has run before.
#   same_hash.sh path/to/sim_chaos
set -euo pipefail

hash_of() { "$@" --json | sed 's/.*"hash":"\([0-9a-f]*\)".*/\1/'; }

once=$(hash_of "$1" sim chaos --seed 31 --runs 3)
again=$(hash_of "$1" sim chaos --seed 31 --runs 3)
others=$(hash_of "$1" sim chaos --seed 32 --runs 3)
echo "seeds 31 to 33: $once, then $again; seeds 32 to 34: $others"
[[ $once =~ ^[0-9a-f]{16}$ && $once == "$again" && $once != "$others" ]]

# A seed's own hash is the same first in its process and after others.
alone=$("$1" sim chaos --seed 33 --verbose | grep -o 'seed 33: hash [0-9a-f]*')
after=$("$1" sim chaos --seed 32 --runs 2 --verbose | grep -o 'seed 33: hash [0-9a-f]*')
echo "$alone alone, $after after another"
[[ -n $alone && $alone == "$after" ]]
