import { randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { BackupFile, Pool } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { newId } from '@virtkeep/shared/ids';
import { GiB } from '@virtkeep/shared/units';
import { backupTargetRefusal, MARKER } from '../../../agent/src/pools/index.ts';
import { run, waitFor } from '../../lab/run.ts';
import { CALL, InventoryLab } from './lab.ts';

const signal = new AbortController().signal;
let lab: InventoryLab;
beforeAll(async () => {
  lab = await InventoryLab.start();
});
afterAll(() => lab?.stop());

/** As last seen. */
const get = async (id: string) => {
  const { pools } = (await lab.pools.list({}, CALL)) as { pools: Pool[] };
  return pools.find(pool => pool.id === id)!;
};
const update = async (id: string, change: Partial<Pool>) =>
  (await lab.pools.update({ id, ...change } as Parameters<typeof lab.pools.update>[0], CALL)) as Pool;

/** Defines a pool from XML; it is not started. */
async function definePool(xml: string): Promise<void> {
  const file = join(lab.world.dir, `${randomUUID()}.xml`);
  writeFileSync(file, xml);
  await lab.world.node.virsh('pool-define', file);
}

describe('data pools', () => {
  test("are libvirt's, with exact sizes and one base", async () => {
    const { pools } = (await lab.pools.list({}, CALL)) as { pools: Pool[] };
    expect(pools.map(pool => pool.name).sort()).toEqual(['bulk', 'fast']);
    for (const pool of pools) {
      expect(pool).toMatchObject({
        type: 'local',
        active: true,
        mounted: true,
        backupTarget: true,
        backupTargetReason: '',
      });
      expect(pool.available).toBeGreaterThan(0n);
      expect(pool.allocation + pool.available).toBe(pool.capacity);
    }
    expect(pools.filter(pool => pool.isBase).map(pool => pool.name)).toEqual(['bulk']);
  });

  test('who asks for one learns what is free on it now, and then everybody knows', async () => {
    const { uuid, path } = lab.world.node.pool('fast');
    const { available: before } = (await lab.pools.get({ id: uuid }, CALL)) as Pool;
    const file = join(path, 'much');
    // others write to the same file system, but not so much
    await run(['fallocate', '-l', '4G', file]);
    const { available: after } = (await lab.pools.get({ id: uuid }, CALL)) as Pool;
    rmSync(file);
    expect(after).toBeLessThan(before - 2n * BigInt(GiB));
    expect((await get(uuid)).available).toBe(after);
  });

  test('that are stopped or started are seen so at once', async () => {
    const { uuid } = lab.world.node.pool('fast');
    await lab.world.node.virsh('pool-destroy', 'fast');
    await waitFor('the stop', async () => !(await get(uuid)).active, 180_000, 20);
    const record = (await lab.inventory.pools(signal)).find(pool => pool.id === uuid)!;
    expect(backupTargetRefusal(record, 'n')?.msgKey).toBe('pool_not_active');
    expect((await get(uuid)).backupTargetReason).toContain(lab.world.node.name);
    await lab.world.node.virsh('pool-start', 'fast');
    await waitFor('the start', async () => (await get(uuid)).backupTarget, 180_000, 20);
  });

  test('keep their marks, and refuse what cannot be the base', async () => {
    const { uuid } = lab.world.node.pool('fast');
    expect(await update(uuid, { isBase: true, description: 'quick' })).toMatchObject({
      isBase: true,
      description: 'quick',
    });
    const { pools } = (await lab.pools.list({}, CALL)) as { pools: Pool[] };
    expect(pools.filter(pool => pool.isBase)).toHaveLength(1);
    expect(await update(uuid, { readonly: true })).toMatchObject({
      readonly: true,
      backupTarget: false,
      description: 'quick',
    });
    await expect(update(uuid, { isBase: true })).rejects.toEqual(
      expect.objectContaining({ msgKey: 'pool_read_only' }),
    );
    expect(await update(uuid, { readonly: false, outside: true })).toMatchObject({
      outside: true,
      backupTarget: false,
    });
    expect(await update(uuid, { outside: false, isBase: false, description: '' })).toMatchObject({
      isBase: false,
      outside: false,
    });
    await expect(lab.pools.get({ id: randomUUID() }, CALL)).rejects.toEqual(
      expect.objectContaining({ msgKey: 'pool_not_found' }),
    );
  });

  test('of LVM and ZFS are listed and refused', async () => {
    await definePool(
      `<pool type='logical'><name>vg0</name><source><device path='/dev/null'/><name>vg0</name></source><target><path>/dev/vg0</path></target></pool>`,
    );
    const found = await waitFor(
      'the pool',
      () => lab.inventory.poolMessages().find(pool => pool.name === 'vg0'),
      180_000,
      20,
    );
    expect(found).toMatchObject({ type: 'lvm', active: false, backupTarget: false });
    expect(found.backupTargetReason).toContain('neither as source nor as target');
    await lab.world.node.virsh('pool-undefine', 'vg0');
    await waitFor(
      'its end',
      () => !lab.inventory.poolMessages().some(pool => pool.name === 'vg0'),
      180_000,
      20,
    );
  });

  test('that had a marker are mounted only with it', async () => {
    const path = join(lab.world.dir, 'share');
    mkdirSync(path);
    writeFileSync(join(path, MARKER), '');
    await definePool(`<pool type='dir'><name>share</name><target><path>${path}</path></target></pool>`);
    await lab.world.node.virsh('pool-start', 'share');
    const { id } = await waitFor(
      'the pool',
      () => lab.inventory.poolMessages().find(pool => pool.name === 'share' && pool.active),
      180_000,
      20,
    );
    expect(await get(id)).toMatchObject({ mounted: true, backupTarget: true });
    rmSync(join(path, MARKER));
    const record = (await lab.inventory.pools(signal)).find(pool => pool.id === id)!;
    expect(backupTargetRefusal(record)?.msgKey).toBe('pool_not_mounted');
    expect(await get(id)).toMatchObject({ mounted: false, backupTarget: false });
  });
});

describe('a pool on a file system of its own', () => {
  const path = () => join(lab.world.dir, 'usb');
  const mount = () => run(['mount', '-t', 'tmpfs', '-o', 'size=8M', 'tmpfs', path()]);
  const record = async () => (await lab.inventory.pools(signal)).find(pool => pool.name === 'usb')!;
  afterAll(() => run(['umount', path()]).catch(() => {}));

  test('gets a marker when it is first seen, and is neither written to nor scanned while it is not mounted', async () => {
    mkdirSync(path());
    await definePool(`<pool type='dir'><name>usb</name><target><path>${path()}</path></target></pool>`);
    await lab.world.node.virsh('pool-start', 'usb');
    await mount();
    expect(await record()).toMatchObject({ mounted: true, kind: 'local' });
    expect(existsSync(join(path(), MARKER))).toBe(true);
    const { id: poolId } = await record();
    await lab.ended(
      lab.pools.scan({ operationId: newId(), poolId, thorough: false, filesApart: false }, CALL),
    );
    await run(['umount', path()]);
    expect(backupTargetRefusal(await record())?.msgKey).toBe('pool_not_mounted');
    await expect(
      lab.pools.scan({ operationId: newId(), poolId, thorough: false, filesApart: false }, CALL),
    ).rejects.toEqual(expect.objectContaining({ msgKey: 'pool_not_mounted' }));
    expect(readdirSync(path())).toEqual([]);
    await lab.world.node.virsh('pool-destroy', 'usb');
    await lab.world.node.virsh('pool-undefine', 'usb');
  });

  test('is none where it lies on that of the node', async () => {
    await lab.inventory.pools(signal);
    expect(existsSync(join(lab.world.node.pool('fast').path, MARKER))).toBe(false);
  });
});

describe('backup files', () => {
  test('are found, re-read by a scan, and counted', async () => {
    const { uuid, path } = lab.world.node.pool('bulk');
    mkdirSync(join(path, 'backups'), { recursive: true });
    writeFileSync(join(path, 'backups', 'vm.xml'), '<domain><name>kept</name></domain>');
    writeFileSync(join(path, 'backups', 'broken.tar'), 'no tar');
    writeFileSync(join(path, 'backups', 'a.ova'), '');
    lab.inventory.filesChanged(uuid);
    await waitFor('the files', async () => (await get(uuid)).fileCount === 3, 180_000, 20);
    const { files } = (await lab.pools.listFiles({ poolId: uuid }, CALL)) as { files: BackupFile[] };
    expect(files.map(file => [file.filename, file.type, file.domainName, file.damage !== ''])).toEqual([
      ['a.ova', 'OVA', '', true],
      ['broken.tar', 'tar', '', true],
      ['vm.xml', 'xml', 'kept', false],
    ]);
    rmSync(join(path, 'backups', 'a.ova'));
    const request = { operationId: newId(), poolId: uuid, thorough: false, filesApart: false };
    const result = await lab.ended(lab.pools.scan(request, CALL));
    expect((result.files as { filename: string }[]).map(file => file.filename)).toEqual([
      'broken.tar',
      'vm.xml',
    ]);
    expect((await get(uuid)).fileCount).toBe(2);
    const apart = { ...request, operationId: newId(), filesApart: true };
    await lab.ended(lab.pools.scan(apart, CALL));
    const told: unknown[] = [];
    for await (const { files } of lab.pools.streamFiles({ poolId: uuid }, CALL))
      told.push(...(files ?? []).map(({ filename }) => filename));
    expect(told).toEqual(['broken.tar', 'vm.xml']);
    // the same call again answers the same operation
    expect(await lab.ended(lab.pools.scan(request, CALL))).toEqual(result);
    const missing = lab.pools.scan({ ...request, operationId: newId(), poolId: randomUUID() }, CALL);
    await expect(missing).rejects.toEqual(expect.objectContaining({ msgKey: 'pool_not_found' }));
  });
});
