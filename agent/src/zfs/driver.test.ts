/** The driver on volumes, with a scripted program: what zfs-fuse does not have, in the words of OpenZFS 2. */
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { localTools, ZfsDriver } from './index.ts';

const ID = '0b0c8a52-8f0e-4ac6-9a52-6f2d0c5f3e11';
const CLONE = `tank/virtkeep-${ID}`;

let directory: string;
/** Links of /dev/zvol, and whatever else has a path. */
let links: Record<string, string>;
/** Called before a path is looked at, with how often that path was. */
let looking: (path: string, times: number) => void;
const signal = () => AbortSignal.timeout(240_000);

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'vk-zfs-'));
  looking = () => {};
  links = {
    '/dev/zvol/tank/vm/disk 1': '/dev/zd0',
    '/dev/zvol/tank/b': '/dev/zd16',
    '/dev/zd16': '/dev/zd16',
  };
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

/** A driver whose zfs notes its arguments, one line each, and answers with a shell script that sees them as "$*". */
function scripted(answers: string): ZfsDriver {
  const program = join(directory, 'zfs');
  writeFileSync(program, `#!/bin/sh\nprintf '%s\\n' "$*" >> '${directory}/calls'\n${answers}\n`);
  chmodSync(program, 0o755);
  const looks = new Map<string, number>();
  return new ZfsDriver({
    ...localTools([program]),
    mountInfo: async () => '22 1 254:1 / / rw - ext4 /dev/vda1 rw\n',
    realPath: async path => {
      const times = (looks.get(path) ?? 0) + 1;
      looks.set(path, times);
      looking(path, times);
      return links[path] ?? null;
    },
  });
}

const calls = () => readFileSync(join(directory, 'calls'), 'utf8').trimEnd().split('\n');

describe('a volume', () => {
  test('is known by its path without asking', async () => {
    const place = await scripted('exit 1').placeOf('/dev/zvol/tank/vm/disk 1', signal());
    expect(place).toEqual({ kind: 'volume', dataset: 'tank/vm/disk 1' });
  });

  test('is found by its device', async () => {
    const driver = scripted("printf 'tank/vm/disk 1\\ntank/b\\n'");
    expect(await driver.placeOf('/dev/zd16', signal())).toEqual({ kind: 'volume', dataset: 'tank/b' });
    expect(calls()).toEqual(['list -H -o name -t volume']);
    links['/dev/zd32'] = '/dev/zd32';
    expect(await driver.placeOf('/dev/zd32', signal())).toBeNull();
    expect(await driver.placeOf('/dev/sda', signal())).toBeNull();
  });

  test('is cloned read-only, and its device is waited for', async () => {
    const driver = scripted('exit 0');
    looking = (path, times) => {
      if (times === 3) links[path] = '/dev/zd48';
    };
    const like = { kind: 'volume', dataset: 'tank/b' } as const;
    const path = await driver.clone(
      'tank/b@now',
      like,
      { dataset: CLONE, properties: { disk: ID } },
      signal(),
    );
    expect(path).toBe(`/dev/zvol/${CLONE}`);
    expect(calls()).toEqual([`clone -o readonly=on -o virtkeep:disk=${ID} tank/b@now ${CLONE}`]);
  });

  test('whose clone never appears fails, and a fired signal ends the wait', async () => {
    const stop = new AbortController();
    const like = { kind: 'volume', dataset: 'tank/b' } as const;
    looking = (_path, times) => {
      if (times === 3) stop.abort();
    };
    const waiting = scripted('exit 0').clone(
      'tank/b@now',
      like,
      { dataset: CLONE, properties: {} },
      stop.signal,
    );
    await expect(waiting).rejects.toMatchObject({ msgKey: 'canceled' });
  });

  test('in use when its clone is destroyed is tried again', async () => {
    const driver = scripted(`
      case "$1" in
        list) echo tank/b@now ;;
        destroy)
          [ -e '${directory}/let-go' ] && exit 0
          touch '${directory}/let-go'
          echo "cannot destroy '${CLONE}': dataset is busy" >&2; exit 1 ;;
      esac`);
    await driver.destroyClone(CLONE, signal());
    expect(calls()).toEqual([`list -H -o origin ${CLONE}`, `destroy ${CLONE}`, `destroy ${CLONE}`]);
  });
});

describe('a clone', () => {
  const hasChildren = `echo "cannot destroy '${CLONE}': volume has children" >&2; exit 1`;

  test('that was snapshotted with all that lies beside it goes with its own snapshots, and with no others', async () => {
    const driver = scripted(`
      case "$*" in
        *origin*) echo tank/b@now ;;
        list*) printf 'tank/b@auto\\n${CLONE}@auto\\n${CLONE}@hourly\\n${CLONE}x@auto\\n${CLONE}/below@auto\\n' ;;
        *@*) touch '${directory}/let-go' ;;
        destroy*) [ -e '${directory}/let-go' ] || { ${hasChildren}; } ;;
      esac`);
    await driver.destroyClone(CLONE, signal());
    const destroyed = calls().filter(call => call.startsWith('destroy'));
    expect(destroyed).toEqual([
      `destroy ${CLONE}`,
      `destroy ${CLONE}@auto`,
      `destroy ${CLONE}@hourly`,
      `destroy ${CLONE}`,
    ]);
  });

  test('with a dataset of somebody else below it stays', async () => {
    const driver = scripted(`
      case "$*" in
        *origin*) echo tank/b@now ;;
        list*) printf 'tank/b@auto\\n${CLONE}/below@auto\\n' ;;
        destroy*) ${hasChildren} ;;
      esac`);
    await expect(driver.destroyClone(CLONE, signal())).rejects.toMatchObject({
      msgKey: 'zfs_failed',
      params: { command: 'destroy', reason: `cannot destroy '${CLONE}': volume has children` },
    });
    expect(calls().filter(call => call.startsWith('destroy'))).toEqual([`destroy ${CLONE}`]);
  });
});

describe('snapshots', () => {
  test('of one pool are one call, of each pool another', async () => {
    await scripted('exit 0').snapshot(['tank/a', 'fast/x', 'tank/b'], 'now', { owner: ID }, signal());
    expect(calls()).toEqual([
      `snapshot -o virtkeep:owner=${ID} tank/a@now tank/b@now`,
      `snapshot -o virtkeep:owner=${ID} fast/x@now`,
    ]);
  });

  test('of one pool are taken back when the other pool refuses', async () => {
    const driver = scripted(`
      case "$*" in
        *fast*) echo "cannot create snapshot 'fast/x@now': out of space" >&2; exit 1 ;;
      esac`);
    await expect(driver.snapshot(['tank/a', 'fast/x'], 'now', {}, signal())).rejects.toMatchObject({
      msgKey: 'zfs_failed',
      params: { command: 'snapshot', reason: "cannot create snapshot 'fast/x@now': out of space" },
    });
    expect(calls()).toEqual(['snapshot tank/a@now', 'snapshot fast/x@now', 'destroy tank/a@now']);
  });

  test('are listed with their properties', async () => {
    const driver = scripted(`printf 'tank/a@now\\t${ID}\\t17\\ntank/b@other\\t-\\t-\\n'`);
    expect(await driver.snapshots(['owner', 'created'], signal())).toEqual([
      { name: 'tank/a@now', properties: { owner: ID, created: '17' } },
      { name: 'tank/b@other', properties: {} },
    ]);
    expect(calls()).toEqual(['list -H -t snapshot -o name,virtkeep:owner,virtkeep:created']);
  });

  test('with a clone are not destroyed, and the clone is named', async () => {
    const driver = scripted(`
      case "$1" in
        list) printf 'tank\\t-\\ntank/c\\ttank/b@now\\n' ;;
        destroy) printf "cannot destroy 'tank/b@now': snapshot has dependent clones\\nuse '-R' to destroy\\ntank/c\\n" >&2; exit 1 ;;
      esac`);
    await expect(driver.destroySnapshot('tank/b@now', 'web', signal())).rejects.toMatchObject({
      msgKey: 'zfs_clone_exists',
      params: { domain: 'web', clone: 'tank/c' },
    });
  });

  test('that are gone are destroyed, in both wordings', async () => {
    for (const said of [
      'could not find any snapshots to destroy; check snapshot names.',
      "cannot open 'x': dataset does not exist",
    ])
      await scripted(`echo "${said}" >&2; exit 1`).destroySnapshot('tank/b@now', 'web', signal());
  });
});

describe('the program', () => {
  test('without any pool lists nothing', async () => {
    expect(await scripted('echo "no datasets available" >&2; exit 1').clones([], signal())).toEqual([]);
  });

  test('that cannot be run, dies or says too much', async () => {
    const absent = new ZfsDriver(localTools([join(directory, 'none')]));
    await expect(absent.clones([], signal())).rejects.toMatchObject({ msgKey: 'zfs_failed' });
    await expect(scripted('kill -9 $$').clones([], signal())).rejects.toMatchObject({
      msgKey: 'zfs_failed',
      params: { reason: 'it was ended by a signal' },
    });
    await expect(scripted('yes').clones([], signal())).rejects.toMatchObject({
      msgKey: 'zfs_failed',
      params: { reason: 'its output is too large' },
    });
  });

  test('that hangs is ended by the signal', async () => {
    const stop = new AbortController();
    const hanging = scripted('exec sleep 1000').clones([], stop.signal);
    while (!existsSync(join(directory, 'calls'))) await new Promise(resolve => setTimeout(resolve, 10));
    stop.abort();
    await expect(hanging).rejects.toMatchObject({ msgKey: 'canceled' });
  });
});
