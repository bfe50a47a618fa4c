/**
 * A stand-in for `virt-v2v-in-place` of the package virt-v2v, which needs a real guest and minutes: it tells what it is given and sees, marks the
 * disks, and ends as a test wants. And a PATH with all programs of this machine but the real one.
 */
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { listProcesses } from './processes.ts';

const PROGRAM = 'virt-v2v-in-place';
const SLEEPS = /\bsleep 4242$/;
/** What it writes at the beginning of each disk. */
export const MARK = 0xd7;
export const MARKED_BYTES = 65_536;

/** drive: as one that succeeds; drive-none: as one that has no drivers; fail; hang: until it is ended, with a child of its own. */
export type Ending = 'drive' | 'drive-none' | 'fail' | 'hang';

const script = (dir: string) => `#!/bin/sh
# Stand-in for virt-v2v-in-place.
for xml; do :; done
place=$(dirname "$xml")
{
  echo "arguments: $*"
  echo "definition: $(cat "$xml")"
  echo "files: $(ls -A "$place" | tr '\\n' ' ')"
  echo "interfaces: $(tail -n +3 /proc/self/net/dev | cut -d: -f1 | tr -d ' ' | tr '\\n' ' ')"
  echo "variables: $(env | cut -d= -f1 | sort | tr '\\n' ' ')"
  grep " $place" /proc/self/mountinfo | while read -r _ _ _ root at _; do echo "mounted: $root $at"; done
} >>'${dir}/seen'
echo '[   0.0] Setting up the source'
ending=$(cat '${dir}/ending')
case $ending in
  hang)
    sleep 4242 &
    touch '${dir}/hangs'
    sleep 4242 ;;
  fail)
    echo 'virt-v2v-in-place: error: no root device found in this operating system image. password=hunter2' >&2
    exit 1 ;;
esac
for image in "$place"/*.qcow2; do
  qemu-io -f qcow2 -c 'write -P ${MARK} 0 ${MARKED_BYTES}' "$image" || exit 1
done
case $ending in
  drive-none) echo 'virt-v2v-in-place: This guest does not have virtio drivers installed.' ;;
  *)
    echo 'virt-v2v-in-place: This guest has virtio drivers installed.'
    echo 'virt-v2v-in-place: warning: the guest tools of a stand-in stay' >&2 ;;
esac
echo '[   1.0] Finishing off'
`;

export class StandInV2v {
  readonly #dir: string;

  /** @param dir exists, and has room for links to all programs */
  constructor(dir: string) {
    this.#dir = dir;
    mkdirSync(join(dir, 'tools'));
    mkdirSync(join(dir, 'others'));
    for (const directory of ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin'])
      for (const name of existsSync(directory) ? readdirSync(directory) : []) {
        const link = join(dir, 'others', name);
        if (name !== PROGRAM && !existsSync(link)) {
          rmSync(link, { force: true });
          symlinkSync(join(directory, name), link);
        }
      }
  }

  get path(): string {
    return `${join(this.#dir, 'tools')}:${join(this.#dir, 'others')}`;
  }

  /** From now on it is installed, and ends so. */
  install(ending: Ending): void {
    this.remove();
    const file = join(this.#dir, 'tools', PROGRAM);
    writeFileSync(file, script(this.#dir));
    chmodSync(file, 0o755);
    writeFileSync(join(this.#dir, 'ending'), ending);
  }

  /** From now on the node does not have it. */
  remove(): void {
    for (const name of [`tools/${PROGRAM}`, 'seen', 'hangs']) rmSync(join(this.#dir, name), { force: true });
  }

  /** What it was given and has seen since it was installed, by what; each run adds to it. */
  seen(what: string): string[] {
    const file = join(this.#dir, 'seen');
    const lines = existsSync(file) ? readFileSync(file, 'utf8').split('\n') : [];
    return lines.filter(line => line.startsWith(`${what}: `)).map(line => line.slice(what.length + 2).trim());
  }

  /** Both of it wait: itself, and the child that it has started. */
  get hangs(): boolean {
    return existsSync(join(this.#dir, 'hangs')) && this.running().some(command => SLEEPS.test(command));
  }

  /** Commands of it and of what it has started that run. */
  running(): string[] {
    return listProcesses()
      .map(({ command }) => command)
      .filter(command => command.includes(`${this.#dir}/tools/${PROGRAM}`) || SLEEPS.test(command));
  }
}
