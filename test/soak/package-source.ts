/** A source of packages inside of a Debian guest that has no way to any other. */
import type { Guest } from '../lab/guest.ts';

const SOURCE = '/opt/source';

/** Makes a source that has one package of that name, of the version of sssd; it has nothing in it. */
export async function makeSource(guest: Guest, name: string): Promise<void> {
  const deb = `${name}.deb`;
  await guest.sh(`set -e
    mkdir -p ${SOURCE}/tree/DEBIAN
    cd ${SOURCE}
    version=$(dpkg-query -W -f '\${Version}' sssd-ad)
    printf 'Package: ${name}\\nVersion: %s\\nArchitecture: all\\nMaintainer: lab <lab@lab.test>\\nDescription: lab\\n' "$version" >tree/DEBIAN/control
    printf '#!/bin/sh\\nwhile [ -e ${SOURCE}/hold ]; do touch ${SOURCE}/held; sleep 1; done\\n' >tree/DEBIAN/postinst
    chmod 755 tree/DEBIAN/postinst
    dpkg-deb --build tree ${deb}
    cp tree/DEBIAN/control Packages
    printf 'Filename: ./${deb}\\nSize: %s\\nSHA256: %s\\n' $(stat -c %s ${deb}) $(sha256sum <${deb} | cut -d' ' -f1) >>Packages
    rm -rf tree
    echo 'deb [trusted=yes] file:${SOURCE} ./' >/etc/apt/sources.list.d/lab.list`);
}

export async function removeSource(guest: Guest): Promise<void> {
  await guest.sh(`rm -rf ${SOURCE} /etc/apt/sources.list.d/lab.list`);
}

/** An installation of the package stands still until `release`. */
export const hold = (guest: Guest): Promise<string> => guest.sh(`touch ${SOURCE}/hold`);
export const release = (guest: Guest): Promise<string> => guest.sh(`rm ${SOURCE}/hold`);
/** One stands still. */
export const isHeld = async (guest: Guest): Promise<boolean> =>
  (await guest.sh(`ls ${SOURCE}`)).includes('held');

/** What dpkg says of the package: "installed", "half-configured" … */
export const statusOf = (guest: Guest, name: string): Promise<string> =>
  guest.sh(`dpkg-query -W -f '\${db:Status-Status}' ${name} 2>/dev/null || :`);
