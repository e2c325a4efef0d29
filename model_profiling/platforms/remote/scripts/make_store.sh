# Makes the kit's folder $1. What a run that was cut off left behind a day ago is nobody's any more.
[ -d "$1/files" ] || rm -f "$1/files"
mkdir -p "$1/files" || exit 1
find "$1" -maxdepth 1 -name 'session-*' -mmin +1440 -exec rm -rf {} + 2> /dev/null
find "$1" -name '*.part-*' -mmin +1440 -exec rm -rf {} + 2> /dev/null
true
