/** The contract of the zfs driver, against zfs-fuse: datasets of a pool on a file. */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { localTools, ZfsDriver } from '../../../agent/src/zfs/index.ts';
import { startWorld, type World } from '../../lab/world.ts';
import { startZfsFuse, type ZfsFuse, zfsFuseMissing } from '../../lab/zfs-fuse.ts';
import { type Ground, zfsDriverContract } from './driver-contract.ts';

const missing = await zfsFuseMissing();
if (missing) process.stderr.write(`SKIPPED, the zfs driver is not tested here: ${missing}\n`);

(missing ? describe.skip : describe)('the driver on zfs-fuse', () => {
  let world: World;
  let fuse: ZfsFuse;
  const ground = {} as Ground;

  beforeAll(async () => {
    world = await startWorld();
    fuse = await startZfsFuse(world.node);
    const at = await fuse.createPool('tank');
    for (const name of ['vm', 'vm2', 'deep']) await fuse.zfs('create', `tank/${name}`);
    await fuse.zfs('create', 'tank/deep/er');
    await fuse.node.runInside(['mkdir', join(at, 'vm', 'disks')]);
    const [program, ...before] = fuse.node.insideArgv([join(fuse.bin, 'zfs')]);
    const sh = (...argv: [string, ...string[]]) => fuse.node.runInside(argv).then(({ stdout }) => stdout);
    const driver = new ZfsDriver({
      ...localTools([program!, ...before]),
      mountInfo: async () => fuse.mountInfo(),
      // this process is outside of the node, where nothing is mounted
      realPath: path =>
        sh('realpath', '-e', path)
          .then(text => text.trimEnd())
          .catch(() => null),
    });
    Object.assign(ground, {
      driver,
      first: { dataset: 'tank/vm', path: join(at, 'vm', 'disks', 'a.raw') },
      second: { dataset: 'tank/vm2', path: join(at, 'vm2', 'b.raw') },
      deep: { dataset: 'tank/deep/er', path: join(at, 'deep', 'er', 'c.raw') },
      root: { dataset: 'tank', path: join(at, 'd.raw') },
      zfs: (...args: string[]) => fuse.zfs(...args).then(({ stdout }) => stdout),
      write: (path: string, text: string) => sh('sh', '-c', 'printf %s "$2" > "$1"', 'sh', path, text),
      read: (path: string) => sh('head', '-c', '64', path),
    } satisfies Ground);
  });

  afterAll(async () => {
    try {
      await fuse?.destroyPool('tank');
    } finally {
      await world?.stop(); // one that stays fails every file after this one
    }
  });

  zfsDriverContract(ground);

  test('a bind mount of a directory is the dataset too', async () => {
    const at = join(world.dir, 'bound');
    await fuse.node.runInside(['mkdir', at]);
    await fuse.node.runInside(['mount', '--bind', join(ground.first.path, '..'), at]);
    const place = await ground.driver.placeOf(join(at, 'a.raw'), AbortSignal.timeout(60_000));
    expect(place).toMatchObject({ dataset: 'tank/vm', inside: 'disks/a.raw', mountPoint: at });
    await fuse.node.runInside(['umount', at]);
  });

  test('several snapshots at once, which this program does not know', async () => {
    const signal = AbortSignal.timeout(60_000);
    await ground.driver.snapshot(['tank/vm', 'tank/vm2'], 'both', {}, signal);
    expect(await ground.zfs('list', '-H', '-o', 'name', '-t', 'snapshot')).toBe(
      'tank/vm@both\ntank/vm2@both\n',
    );
    await fuse.zfs('destroy', 'tank/vm@both');
    const half = ground.driver.snapshot(['tank/vm', 'tank/vm2'], 'both', {}, signal);
    await expect(half).rejects.toMatchObject({ msgKey: 'zfs_failed' });
    expect(await ground.zfs('list', '-H', '-o', 'name', '-t', 'snapshot')).toBe('tank/vm2@both\n');
    await fuse.zfs('destroy', 'tank/vm2@both');
  });
});
