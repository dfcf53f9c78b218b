# How an archive and the packages of a program are put together: for `dist`, and for `package`. They set `here`, the folder of
# this file; `parts`, where the programs are, by machine, with their man pages and completions in `share`, and `nfpm`; `dist`,
# where the files go; `version` and SOURCE_DATE_EPOCH.
# shellcheck shell=bash disable=SC2154

# The pages of a program and of its commands; lockkeeper-operator is another program than lockkeeper.
pages() {
    find "$parts/share/man/man1" -name "$1.1" -o -name "$1-*.1" | sort |
        if [ "$1" = lockkeeper ]; then grep -v /lockkeeper-operator; else cat; fi
}

# The folder of an archive, which is laid out as /usr/local is.
archive() {
    local program=$1 arch=$2
    local name=${program}_${version}_linux_$arch
    local folder=$parts/archives/$name
    mkdir -p "$folder/bin" "$folder/share/man/man1"
    install "$parts/$arch/$program" "$folder/bin/"
    pages "$program" | xargs install -m 644 -t "$folder/share/man/man1"
    if [ "$program" = lockkeeper ]; then
        cp -r "$parts"/share/{bash-completion,zsh,fish} "$folder/share/"
        install -m 644 -D -t "$folder/lib/systemd/system" sidecar/systemd/*
    fi
    install -m 644 LICENSE "$folder/"
    sed "s/PROGRAM/$program/g; s/VERSION/$version/g; s/ARCH/$arch/g" "$here/archive.md" >"$folder/README.md"
    "$here/tar" "$parts/archives" "$name" | gzip -9n >"$dist/$name.tar.gz"
}

# The packages for Debian and Red Hat and what is like them, from the same files.
packages() {
    local arch=$1 page
    local root=$parts/packages/$arch
    mkdir -p "$root/man"
    cp -r "$parts/archives/lockkeeper_${version}_linux_$arch" "$root/lockkeeper"
    pages lockkeeper | while read -r page; do
        gzip -9nc "$page" >"$root/man/$(basename "$page").gz"
    done
    find "$root" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
    for kind in deb rpm; do
        (cd "$root" && ARCH=$arch VERSION=$version "$parts/nfpm" package --config "$OLDPWD/$here/nfpm.yaml" \
            --packager "$kind" --target "$dist/")
    done
}

# The program that makes packages. nfpm 2.45 is the newest that everybody can build: 2.46 and newer need modules of
# go.digitalxero.dev, which the public Go module proxy refuses (403). Raise it when `GOMODCACHE=$(mktemp -d) make package` works.
build_nfpm() {
    go build -C "$here" -o "$parts/nfpm" github.com/goreleaser/nfpm/v2/cmd/nfpm
}
