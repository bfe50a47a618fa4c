/**
 * The contract of the zfs driver against OpenZFS, with volumes: in a Debian guest, since this machine's kernel has no zfs.
 * Asked for by VIRTKEEP_ZVOL=1: the first run builds the guest, which takes several minutes (test/lab/zvol-guest.ts).
 */

import { copyFileSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { MiB } from '@virtkeep/shared/units';
import { ZfsDriver } from '../../../agent/src/zfs/index.ts';
import { DEBIAN_CMDLINE } from '../../lab/debian-guest.ts';
import { makePlainDisk } from '../../lab/disks.ts';
import type { Guest } from '../../lab/guest.ts';
import { ROOT } from '../../lab/paths.ts';
import { startWorld, type World } from '../../lab/world.ts';
import { zvolGuest } from '../../lab/zvol-guest.ts';
import { type Ground, zfsDriverContract } from './driver-contract.ts';

const isWanted = process.env.VIRTKEEP_ZVOL === '1';
if (!isWanted) process.stderr.write('SKIPPED, volumes of zfs are tested with VIRTKEEP_ZVOL=1 only\n');

/** As the agent runs it (agent/src/zfs/tools.ts). */
const RUN = ['--quiet', '--collect', '--wait', '--pipe'];
const BUILD_TIMEOUT_MS = 3_600_000;

(isWanted ? describe : describe.skip)('the driver on OpenZFS', () => {
  let world: World;
  let guest: Guest;
  const files = {} as Ground;
  const volumes = {} as Ground;

  beforeAll(async () => {
    const image = await zvolGuest();
    world = await startWorld();
    const root = join(world.node.pool(0).path, 'zvol-root.qcow2');
    copyFileSync(image, root);
    const data = await makePlainDisk(join(world.node.pool(0).path, 'tank.raw'), {
      sizeBytes: 512 * MiB,
      format: 'raw',
    });
    const disks = [{ path: root }, { path: data, format: 'raw' as const }];
    guest = await world.defineTiny({ name: 'zvol', disks, memoryMiB: 1024, cmdline: DEBIAN_CMDLINE });
    await guest.start();
    await guest.waitForAgent(600_000);
    await guest.sh('modprobe zfs && zpool create -m /tank tank /dev/vdb', 300_000);
    for (const name of ['vm', 'vm2', 'deep', 'deep/er']) await guest.sh(`zfs create tank/${name}`);
    for (const name of ['v1', 'v2', 'deep/v3'])
      await guest.sh(`zfs create -V 8M tank/${name}; udevadm settle`);
    const sh = (...argv: string[]) => guest.exec(argv[0]!, argv.slice(1));
    const driver = new ZfsDriver({
      zfs: async (args, signal) => {
        throwIfAborted(signal);
        const { exitCode, stdout, stderr } = await sh('/usr/sbin/zfs', ...args);
        return { code: exitCode ?? null, stdout, stderr };
      },
      mountInfo: () => guest.sh('cat /proc/self/mountinfo'),
      realPath: path =>
        sh('/usr/bin/realpath', '-e', path).then(({ exitCode, stdout }) =>
          exitCode === 0 ? stdout.trimEnd() : null,
        ),
    });
    const common = {
      driver,
      root: { dataset: 'tank', path: '/tank/d.raw' },
      zfs: (...args: string[]) => sh('/usr/sbin/zfs', ...args).then(({ stdout }) => stdout),
      write: (path: string, text: string) =>
        guest.sh(`printf %s '${text}' | dd of=${path} conv=notrunc,fsync status=none`),
      read: (path: string) => guest.sh(`head -c 64 ${path} | tr -d '\\0'`),
    };
    Object.assign(files, common, {
      first: { dataset: 'tank/vm', path: '/tank/vm/a.raw' },
      second: { dataset: 'tank/vm2', path: '/tank/vm2/b.raw' },
      deep: { dataset: 'tank/deep/er', path: '/tank/deep/er/c.raw' },
    } satisfies Partial<Ground>);
    Object.assign(volumes, common, {
      first: { dataset: 'tank/v1', path: '/dev/zvol/tank/v1' },
      second: { dataset: 'tank/v2', path: '/dev/zvol/tank/v2' },
      deep: { dataset: 'tank/deep/v3', path: '/dev/zvol/tank/deep/v3' },
    } satisfies Partial<Ground>);
  }, BUILD_TIMEOUT_MS);

  afterAll(async () => {
    await world?.stop();
  });

  test('the unit of the agent cannot run zfs itself, and can have systemd run it', async () => {
    const unit = readFileSync(join(ROOT, 'packaging', 'systemd', 'virtkeep-agent.service'), 'utf8');
    const limits = unit
      .split('\n')
      .filter(line => /^(Capability|NoNew|Private|Protect|Restrict|Device|SystemCall|Lock)\w+=./.test(line))
      .flatMap(line => ['-p', line]);
    const inUnit = (...argv: string[]) =>
      guest.exec('/usr/bin/systemd-run', [...RUN, ...limits, '--', ...argv]);
    const denied = await inUnit('zfs', 'snapshot', 'tank/vm@unit');
    expect(denied.exitCode).not.toBe(0);
    const made = await inUnit('systemd-run', ...RUN, '--', 'zfs', 'snapshot', 'tank/vm@unit');
    expect(made).toMatchObject({ exitCode: 0, stderr: '' });
    expect(await files.zfs('list', '-H', '-o', 'name', '-t', 'snapshot')).toBe('tank/vm@unit\n');
    const clone = ['zfs', 'clone', '-o', 'mountpoint=/tank/unit', 'tank/vm@unit', 'tank/unit'];
    expect(await inUnit('systemd-run', ...RUN, '--', ...clone)).toMatchObject({ exitCode: 0 });
    expect(await guest.sh('cat /proc/self/mountinfo')).toContain(' /tank/unit ');
    await guest.sh('zfs destroy tank/unit && zfs destroy tank/vm@unit');
  });

  describe('with files on datasets', () => zfsDriverContract(files));
  describe('with volumes', () => {
    zfsDriverContract(volumes);

    test('a volume is found by its device', async () => {
      const signal = AbortSignal.timeout(240_000);
      const device = (await guest.sh('realpath /dev/zvol/tank/v2')).trim();
      expect(device).toMatch(/^\/dev\/zd\d+$/);
      expect(await volumes.driver.placeOf(device, signal)).toEqual({ kind: 'volume', dataset: 'tank/v2' });
    });
  });
});
