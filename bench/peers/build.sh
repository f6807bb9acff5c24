#!/bin/sh
# Build the peers into a folder outside the tree: bench/peers/build.sh FOLDER
# Needs Go, JDK 17 and Maven. Each program is FOLDER/bin/NAME --dir D --value-bytes N --mode MODE.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1/bin"
folder=$(cd "$1" && pwd)
(cd "$here/etcd" && go build -buildvcs=false -o "$folder/bin/etcd" .)
for peer in kafka:Kafka aeron:AeronCluster; do
    name=${peer%:*}
    main=${peer#*:}
    mkdir -p "$folder/$name/classes"
    mvn -q -B -f "$here/java/$name/pom.xml" dependency:copy-dependencies \
        -DoutputDirectory="$folder/$name/lib" -DincludeScope=runtime
    javac -nowarn -d "$folder/$name/classes" -cp "$folder/$name/lib/*" \
        "$here"/java/common/*.java "$here/java/$name"/*.java
    cat >"$folder/bin/$name" <<EOF
#!/bin/sh
exec java -Xmx1g --add-opens=java.base/sun.nio.ch=ALL-UNNAMED \\
    --add-opens=java.base/jdk.internal.misc=ALL-UNNAMED \\
    -cp "$folder/$name/classes:$folder/$name/lib/*" $main "\$@"
EOF
    chmod +x "$folder/bin/$name"
done
ls "$folder/bin"
