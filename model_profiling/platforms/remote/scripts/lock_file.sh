# One file for all users of the machine, which may have another one; its folder by the name without links.
file="${SME2_KIT_LOCK:-/tmp/sme2_kit.lock}"
home=$(cd "${file%/*}" 2> /dev/null && pwd -P) && file=$home/${file##*/}
