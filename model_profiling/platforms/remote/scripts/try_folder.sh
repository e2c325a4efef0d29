# Makes the folder $1, private, and runs something in it: home directories may be mounted without the right to.
umask 077
mkdir -p "$1" || exit 1
[ "$(stat -c %u "$1")" = "$(id -u)" ] || { echo "it belongs to somebody else" >&2; exit 1; }
cd "$1" || exit 1
try=$1/try-$$
printf '#!/bin/sh\nexit 0\n' > "$try" && chmod 700 "$try" && "$try"
code=$?
rm -f "$try"
exit $code
