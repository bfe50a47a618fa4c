/** What the zfs driver promises, whatever zfs is below it. One suite for zfs-fuse and for OpenZFS. */
import { expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { cloneNameFor, type ZfsDriver, type ZfsPlace } from '../../../agent/src/zfs/index.ts';

/** Where the suite works: file systems (or volumes) of the pool "tank" and a file in each. */
export interface Ground {
  driver: ZfsDriver;
  first: Spot;
  second: Spot;
  /** Two levels below the pool. */
  deep: Spot;
  /** In the pool's own file system. */
  root: Spot;
  /** Runs zfs without the driver; its output. */
  zfs(...args: string[]): Promise<string>;
  /** Overwrites the file. */
  write(path: string, text: string): Promise<unknown>;
  /** The first bytes of a file. */
  read(path: string): Promise<string>;
}

export interface Spot {
  dataset: string;
  path: string;
}

/** Operations of zfs take well under a second; a busy machine is slow. */
const signal = () => AbortSignal.timeout(240_000);

export function zfsDriverContract(ground: Ground): void {
  const all = (...types: string[]) => ground.zfs('list', '-H', '-o', 'name', '-t', types.join(','));
  const place = async (spot: Spot): Promise<ZfsPlace> => (await ground.driver.placeOf(spot.path, signal()))!;

  test('finds the dataset of a path, also of one that is not there yet', async () => {
    for (const spot of [ground.first, ground.second, ground.deep, ground.root]) {
      await ground.write(spot.path, 'one');
      const { kind, dataset } = await place(spot);
      expect(dataset).toBe(spot.dataset);
      if (kind === 'filesystem')
        expect(await ground.driver.placeOf(`${spot.path}.new`, signal())).toMatchObject({ dataset });
    }
    expect(await ground.driver.placeOf('/proc/self/status', signal())).toBeNull();
    expect(await ground.driver.placeOf('/nowhere/at/all', signal())).toBeNull();
  });

  test('a clone shows the instant of its snapshot, and bears what was written on it', async () => {
    const { driver, first } = ground;
    const [id, disk] = [newId(), newId()];
    await ground.write(first.path, 'before');
    await driver.snapshot([first.dataset], 'instant', { owner: id, created: '1700000000' }, signal());
    await ground.write(first.path, 'after!');
    const dataset = cloneNameFor(first.dataset, id);
    const path = await driver.clone(
      `${first.dataset}@instant`,
      await place(first),
      { dataset, properties: { disk } },
      signal(),
    );
    expect(path).toContain(id);
    expect(await ground.read(path)).toBe('before');
    expect(await ground.read(first.path)).toBe('after!');
    expect(await driver.snapshots(['owner', 'created'], signal())).toContainEqual({
      name: `${first.dataset}@instant`,
      properties: { owner: id, created: '1700000000' },
    });
    expect(await driver.clones(['disk'], signal())).toEqual([
      { dataset, origin: `${first.dataset}@instant`, properties: { disk } },
    ]);
    expect(await driver.pathIn(dataset, await place(first))).toBe(path);

    await expect(driver.destroySnapshot(`${first.dataset}@instant`, 'web', signal())).rejects.toMatchObject({
      msgKey: 'zfs_clone_exists',
      params: { domain: 'web', clone: dataset },
    });
    await driver.destroyClone(dataset, signal());
    await driver.destroyClone(dataset, signal());
    await driver.destroySnapshot(`${first.dataset}@instant`, 'web', signal());
    await driver.destroySnapshot(`${first.dataset}@instant`, 'web', signal());
    expect(await all('snapshot')).not.toContain('instant');
    expect(await driver.clones([], signal())).toEqual([]);
  });

  test('of the pool itself and of what lies deeper', async () => {
    const { driver } = ground;
    for (const spot of [ground.root, ground.deep]) {
      await ground.write(spot.path, 'kept');
      await driver.snapshot([spot.dataset], 'instant', {}, signal());
      const dataset = cloneNameFor(spot.dataset, newId());
      const path = await driver.clone(
        `${spot.dataset}@instant`,
        await place(spot),
        { dataset, properties: {} },
        signal(),
      );
      expect(await ground.read(path)).toBe('kept');
      await driver.destroyClone(dataset, signal());
      await driver.destroySnapshot(`${spot.dataset}@instant`, 'web', signal());
    }
  });

  test('two clones of one snapshot', async () => {
    const { driver, first } = ground;
    await driver.snapshot([first.dataset], 'instant', {}, signal());
    const names = [newId(), newId()].map(id => cloneNameFor(first.dataset, id));
    for (const name of names)
      await driver.clone(
        `${first.dataset}@instant`,
        await place(first),
        { dataset: name, properties: {} },
        signal(),
      );
    expect((await driver.clones([], signal())).map(({ dataset }) => dataset).sort()).toEqual(names.sort());
    for (const name of names) await driver.destroyClone(name, signal());
    await driver.destroySnapshot(`${first.dataset}@instant`, 'web', signal());
  });

  test('a clone that was snapshotted goes with its snapshots', async () => {
    const { driver, first } = ground;
    await driver.snapshot([first.dataset], 'instant', {}, signal());
    const dataset = cloneNameFor(first.dataset, newId());
    const like = await place(first);
    await driver.clone(`${first.dataset}@instant`, like, { dataset, properties: {} }, signal());
    for (const name of ['hourly', 'daily'])
      await driver.snapshot([first.dataset, dataset], name, {}, signal());
    await driver.destroyClone(dataset, signal());
    expect(await driver.clones([], signal())).toEqual([]);
    const left = await driver.snapshots([], signal());
    expect(left.map(({ name }) => name).sort()).toEqual(
      ['daily', 'hourly', 'instant'].map(name => `${first.dataset}@${name}`),
    );
    for (const { name } of left) await driver.destroySnapshot(name, 'web', signal());
  });

  test('an original is never destroyed', async () => {
    await expect(ground.driver.destroyClone(ground.first.dataset, signal())).rejects.toMatchObject({
      msgKey: 'zfs_failed',
      params: { reason: `${ground.first.dataset} is not a clone` },
    });
    expect(await all('filesystem', 'volume')).toContain(ground.first.dataset);
  });

  test('what zfs refuses is said in its words', async () => {
    const { driver, first } = ground;
    await driver.snapshot([first.dataset], 'twice', {}, signal());
    await expect(driver.snapshot([first.dataset], 'twice', {}, signal())).rejects.toMatchObject({
      msgKey: 'zfs_failed',
      params: { command: 'snapshot', reason: expect.stringContaining('already exists') },
    });
    await driver.destroySnapshot(`${first.dataset}@twice`, 'web', signal());
    const absent = driver.clone(
      'tank/nope@x',
      await place(first),
      { dataset: 'tank/c', properties: {} },
      signal(),
    );
    await expect(absent).rejects.toMatchObject({ msgKey: 'zfs_failed', params: { command: 'clone' } });
  });

  test('names and values that zfs does not know never reach it', async () => {
    const { driver, first } = ground;
    for (const name of ['-r', 'tank/../x', '../x', 'tank//x', 'tank/x@y', ''])
      await expect(driver.snapshot([name], 'instant', {}, signal())).rejects.toMatchObject({
        msgKey: 'zfs_failed',
      });
    for (const name of ['a/b', '-r', ''])
      await expect(driver.snapshot([first.dataset], name, {}, signal())).rejects.toMatchObject({
        msgKey: 'zfs_failed',
      });
    const odd = driver.snapshot([first.dataset], 'instant', { owner: 'a\tb' }, signal());
    await expect(odd).rejects.toMatchObject({ msgKey: 'zfs_failed' });
    expect(await all('snapshot')).toBe('');
  });

  test('a signal that has fired stops it before it begins', async () => {
    const stopped = AbortSignal.abort();
    await expect(ground.driver.snapshot([ground.first.dataset], 'no', {}, stopped)).rejects.toMatchObject({
      msgKey: 'canceled',
    });
    expect(await all('snapshot')).toBe('');
  });
}
