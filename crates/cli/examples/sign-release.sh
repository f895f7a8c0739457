#!/bin/sh
# sh sign-release.sh FOLDER PURPOSE PUBLIC-KEY
# Writes SHA256SUMS, with the sums of all files of the folder, and its signature into the folder.
set -eu
folder=$1 purpose=$2 public=$3
: "${RELEASE_KEY:?has no encrypted private key}" "${RELEASE_PASSPHRASE:?has no passphrase}"

# Both come through pipes: no file and no command line has them.
printf '%s\n' "$RELEASE_PASSPHRASE" | {
    exec 3<&0
    printf '%s\n' "$RELEASE_KEY" |
        hypergrove sign --key - --passphrase-fd 3 --redundant --context "$purpose" --manifest "$folder" -o "$folder/SHA256SUMS"
}
# A wrong key is noticed here, and not by those who download the files.
hypergrove verify --key "$public" --context "$purpose" --manifest "$folder/SHA256SUMS" --extra
