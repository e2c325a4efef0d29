# Ends the process of the session in $1, while its number still belongs to one of the kit: it runs what lies in the
# kit's folder $2.
pid=$(cat "$1/pid" 2> /dev/null)
case "$pid" in ''|*[!0-9]*) ;; *)
  case "$(tr '\0' ' ' < "/proc/$pid/cmdline" 2> /dev/null)" in *"$2"*) kill -9 "$pid" ;; esac ;;
esac
rm -rf "$1"
true
