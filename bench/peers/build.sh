#!/bin/sh
# Build drivers of peers into a folder outside the tree: bench/peers/build.sh FOLDER [NAME...]
# Each program is FOLDER/bin/NAME (README.md says how it is called). One that cannot be built is
# named with the reason, and the others are built; exit code 1 then.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
[ $# -gt 0 ] || { echo "usage: $0 FOLDER [NAME...]" >&2; exit 2; }
mkdir -p "$1/bin"
folder=$(cd "$1" && pwd)
shift
PATH=$PATH:/usr/local/go/bin

needs() { # PROGRAM WHAT
    command -v "$1" >/dev/null || { echo "it needs $2" >&2; exit 1; }
}

of_go() { # NAME
    needs go Go
    cd "$here/$1" && go build -buildvcs=false -o "$folder/bin/$1" .
}

of_java() { # NAME MAIN
    needs javac "a JDK, 17 or later"
    needs mvn Maven
    mkdir -p "$folder/$1/classes" &&
        mvn -q -B -f "$here/java/$1/pom.xml" dependency:copy-dependencies \
            -DoutputDirectory="$folder/$1/lib" -DincludeScope=runtime &&
        javac -nowarn -d "$folder/$1/classes" -cp "$folder/$1/lib/*" \
            "$here"/java/common/*.java "$here/java/$1"/*.java &&
        cat >"$folder/bin/$1.new" <<END &&
#!/bin/sh
exec java -Xmx1g --add-opens=java.base/sun.nio.ch=ALL-UNNAMED \\
    --add-opens=java.base/jdk.internal.misc=ALL-UNNAMED \\
    -cp "$folder/$1/classes:$folder/$1/lib/*" $2 "\$@"
END
        chmod +x "$folder/bin/$1.new" && mv "$folder/bin/$1.new" "$folder/bin/$1"
}

of_rust() { # NAME
    needs cargo Rust
    cd "$here/$1" && CARGO_TARGET_DIR="$folder/$1" cargo build --quiet --locked --release &&
        cp "$folder/$1/release/peer-$1" "$folder/bin/$1"
}

of_python() { # NAME PACKAGE
    needs python3 Python
    python3 -m venv "$folder/$1" && "$folder/$1/bin/pip" install --quiet "$2" &&
        cp "$here/$1/driver.py" "$folder/$1/driver.py" &&
        cat >"$folder/bin/$1.new" <<END &&
#!/bin/sh
exec "$folder/$1/bin/python" "$folder/$1/driver.py" "\$@"
END
        chmod +x "$folder/bin/$1.new" && mv "$folder/bin/$1.new" "$folder/bin/$1"
}

build() { # NAME
    case $1 in
    aeron) of_java aeron AeronCluster ;;
    jraft) of_java jraft Jraft ;;
    kafka) of_java kafka Kafka ;;
    openraft) of_rust openraft ;;
    pysyncobj) of_python pysyncobj pysyncobj==0.3.17 ;;
    ratis) of_java ratis Ratis ;;
    zookeeper) of_java zookeeper Zookeeper ;;
    etcd | etcd-raft | hashicorp-raft | nats) of_go "$1" ;;
    *) echo "there is no driver of that name" >&2; exit 1 ;;
    esac
}

failed=0
[ $# -gt 0 ] || set -- aeron etcd etcd-raft hashicorp-raft jraft kafka nats openraft pysyncobj \
    ratis zookeeper
for name in "$@"; do
    (build "$name") || { echo "not built: $name" >&2; failed=1; }
done
exit "$failed"
