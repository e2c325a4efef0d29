# A lock on a machine behind ssh, so that two people do not measure on it at once; after lock_file.sh.
#
# A process there holds it for as long as our connection feeds it: whatever happens here, or on the way, it ends and
# the lock with it. Its command line says whose it is. Only a connection that died without a word can leave it behind
# for some hours: if it was ours, and we know that we are no more, it is ended.
#
# The file is made only where there is nothing, not even a link to nowhere, and opened for reading only, which is enough
# for flock(2). Where something else is in its place, or there is no `flock`, the list of processes has to do; one look
# at all of them, as a question for each would take a slow machine seconds. Only the shell has the file open, because
# `cat` outlives a shell that is killed. It ends with a `:` because a shell may become its last command, and then no
# longer says whose it is.
umask 022
[ -e "$file" ] || [ -L "$file" ] || ( set -C; : > "$file" ) 2> /dev/null
is_lock() { [ -f "$file" ] && [ -r "$file" ] && [ ! -L "$file" ]; }
if is_lock && command -v flock > /dev/null && exec 9< "$file" && [ "$(readlink /proc/$$/fd/9)" = "$file" ]; then
  flock -n 9 || { echo taken; exit 0; }
else
  exec 9<&-
  for p in $(grep -ls sme2-kit-lock /proc/[0-9]*/cmdline); do
    p=${p%/cmdline}
    [ "${p##*/}" = $$ ] && continue
    tr '\0' ' ' < "$p/cmdline" 2> /dev/null | grep -q ' sme2-kit-lock [0-9]' && { echo taken; exit 0; }
  done
fi
echo held
cat > /dev/null 9<&-
:
