import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { ErrorCode, type Libvirt, ListPools, PoolCreate, PoolState, VolType } from '../src/index.ts';
import { TestLibvirtd } from './libvirtd.ts';

let daemon: TestLibvirtd;
let libvirt: Libvirt;

beforeAll(async () => {
  daemon = await TestLibvirtd.start();
  libvirt = await daemon.connect();
});
afterAll(async () => {
  await daemon?.stop();
  await libvirt?.close();
});

const poolXml = (name: string, path: string) =>
  `<pool type='dir'><name>${name}</name><target><path>${path}</path></target></pool>`;
const volXml = (name: string, sizeBytes: number) =>
  `<volume><name>${name}</name><capacity>${sizeBytes}</capacity><target><format type='qcow2'/></target></volume>`;

describe('storage pools', () => {
  test('define, build, start, list, stop, delete, undefine, with events', async () => {
    const path = join(daemon.dir, 'pool');
    const events: string[] = [];
    libvirt.on('poolLifecycle', e => events.push(`${e.name} ${e.event}`));
    const pool = await libvirt.definePool(poolXml('one', path));
    expect(await pool.isActive()).toBe(false);
    await pool.build();
    await pool.create();
    expect(await pool.info()).toMatchObject({ state: PoolState.RUNNING, capacity: expect.any(Number) });
    expect((await libvirt.pools(ListPools.ACTIVE)).map(p => p.name)).toEqual(['one']);
    expect((await libvirt.poolByName('one')).uuid).toBe(pool.uuid);
    expect((await libvirt.poolByUuid(pool.uuid)).name).toBe('one');
    expect((await libvirt.poolByTarget(path))?.uuid).toBe(pool.uuid);
    expect(await libvirt.poolByTarget('/none')).toBeNull();
    expect(await pool.xml()).toContain(path);
    expect([await pool.isPersistent(), await pool.autostart()]).toEqual([true, false]);
    await pool.setAutostart(true);
    expect(await pool.autostart()).toBe(true);
    const refreshed = libvirt.waitFor('poolRefresh', e => e.uuid === pool.uuid, { timeoutMs: 240_000 });
    await pool.refresh();
    await refreshed;
    await pool.destroy();
    await pool.delete();
    const undefined_ = libvirt.waitFor('poolLifecycle', e => e.event === 'undefined', { timeoutMs: 240_000 });
    await pool.undefine();
    await undefined_;
    expect(events).toEqual(
      expect.arrayContaining(['one defined', 'one started', 'one stopped', 'one undefined']),
    );
    await expect(libvirt.poolByName('one')).rejects.toMatchObject({ code: ErrorCode.NO_STORAGE_POOL });
  });

  test('volumes', async () => {
    const path = join(daemon.dir, 'vols');
    await mkdir(path);
    await writeFile(join(path, 'ready.img'), Buffer.alloc(4096));
    const pool = await libvirt.createPool(poolXml('vols', path), PoolCreate.NORMAL);
    const vol = await pool.createVolume(volXml('disk.qcow2', 8 << 20));
    expect(vol).toMatchObject({ poolUuid: pool.uuid, name: 'disk.qcow2' });
    expect(await vol.info()).toMatchObject({ type: VolType.FILE, capacity: 8 << 20 });
    expect(await vol.path()).toBe(join(path, 'disk.qcow2'));
    expect(await vol.xml()).toContain(`<format type='qcow2'/>`);
    await vol.resize(16 << 20);
    expect((await vol.info()).capacity).toBe(16 << 20);
    expect((await pool.volumes()).map(v => v.name).sort()).toEqual(['disk.qcow2', 'ready.img']);
    expect((await pool.findVolume('ready.img'))?.poolUuid).toBe(pool.uuid);
    expect(await pool.findVolume('none')).toBeNull();
    const found = await libvirt.volumeByPath(join(path, 'disk.qcow2'));
    expect(found).toMatchObject({ poolUuid: pool.uuid, name: 'disk.qcow2', key: vol.key });
    expect((await libvirt.volumeByKey(vol.key))?.name).toBe('disk.qcow2');
    expect(await libvirt.volumeByPath('/none')).toBeNull();
    await vol.delete();
    await expect(vol.info()).rejects.toMatchObject({ code: ErrorCode.NO_STORAGE_VOL });
    await pool.destroy();
    await expect(pool.info()).rejects.toMatchObject({ code: ErrorCode.NO_STORAGE_POOL });
  });
});
