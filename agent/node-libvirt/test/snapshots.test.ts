import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import {
  BlockCommit,
  BlockCopy,
  BlockJobAbort,
  BlockJobBandwidth,
  BlockJobType,
  BlockPull,
  type Domain,
  ErrorCode,
  JobStatsFlag,
  JobType,
  type Libvirt,
  ListDomains,
  SnapshotCreate,
  SnapshotDelete,
  SnapshotList,
} from '../src/index.ts';
import { diskXml, guestXml, qcow2, run } from './guests.ts';
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

async function guest(name: string): Promise<Domain> {
  const disk = await qcow2(daemon.dir, `${name}.qcow2`);
  await run('qemu-io', ['-f', 'qcow2', '-c', 'write -P 7 0 4M', disk]);
  const dom = await libvirt.defineDomain(guestXml(name, { devices: diskXml(disk, 'vda') }));
  await dom.create();
  return dom;
}

const overlay = (dom: Domain, name: string) => join(daemon.dir, `${dom.name}.${name}.qcow2`);
const snapshotXml = (dom: Domain, name: string, memory = '') =>
  `<domainsnapshot><name>${name}</name>${memory}<disks><disk name='vda' snapshot='external'>
    <driver type='qcow2'/><source file='${overlay(dom, name)}'/></disk></disks></domainsnapshot>`;
const DISK = SnapshotCreate.DISK_ONLY | SnapshotCreate.ATOMIC;
const names = (list: { name: string }[]) => list.map(s => s.name);

function jobEvent(dom: Domain, status: string) {
  return libvirt.waitFor('blockJob', e => e.uuid === dom.uuid && e.status === status, { timeoutMs: 240_000 });
}

describe('snapshots', () => {
  let dom: Domain;
  beforeAll(async () => {
    dom = await guest('tree');
  });

  test('create, list, tree, current, delete', async () => {
    expect(await dom.snapshots()).toEqual([]);
    expect(await dom.currentSnapshot()).toBeNull();
    const withSnapshots = async () => names(await libvirt.domains(ListDomains.HAS_SNAPSHOT));
    expect(await withSnapshots()).not.toContain('tree');
    const one = await dom.createSnapshot(snapshotXml(dom, 'one'), DISK);
    const two = await dom.createSnapshot(snapshotXml(dom, 'two'), DISK);
    expect(names(await dom.snapshots(SnapshotList.TOPOLOGICAL))).toEqual(['one', 'two']);
    expect(await withSnapshots()).toContain('tree');
    expect(names(await dom.snapshots(SnapshotList.ROOTS))).toEqual(['one']);
    expect((await dom.currentSnapshot())?.name).toBe('two');
    expect([await one.isCurrent(), await two.isCurrent(), await two.hasMetadata()]).toEqual([
      false,
      true,
      true,
    ]);
    expect(await one.parent()).toBeNull();
    expect((await two.parent())?.name).toBe('one');
    expect(names(await one.children())).toEqual(['two']);
    expect(names(await two.children(SnapshotList.DESCENDANTS))).toEqual([]);
    expect(await two.xml()).toContain(overlay(dom, 'two'));
    expect((await dom.findSnapshot('one'))?.domainUuid).toBe(dom.uuid);
    expect(await dom.findSnapshot('none')).toBeNull();
    await expect(
      dom.createSnapshot('<domainsnapshot><name>two</name></domainsnapshot>', DISK),
    ).rejects.toMatchObject({
      code: ErrorCode.OPERATION_FAILED,
    });
    await expect(dom.snapshot('none').delete()).rejects.toMatchObject({ code: ErrorCode.NO_DOMAIN_SNAPSHOT });
    // libvirt 9.9 learned to revert to external snapshots
    if (Number.parseInt((await libvirt.versions()).daemon, 10) <= 9)
      await expect(one.revert()).rejects.toMatchObject({ code: ErrorCode.CONFIG_UNSUPPORTED });
    await two.delete();
    await one.delete();
    expect(await dom.snapshots()).toEqual([]);
    expect(await dom.xml()).toContain('tree.qcow2');
    expect(await dom.xml()).not.toContain(overlay(dom, 'one'));
  });

  test('with memory; the job tells its statistics', async () => {
    expect((await dom.jobStats()).type).toBe(JobType.NONE);
    const file = join(daemon.dir, 'memory.mem');
    const completed = libvirt.waitFor('jobCompleted', e => e.uuid === dom.uuid, { timeoutMs: 240_000 });
    await dom.createSnapshot(
      snapshotXml(dom, 'live', `<memory snapshot='external' file='${file}'/>`),
      SnapshotCreate.LIVE | SnapshotCreate.ATOMIC,
    );
    expect((await completed)[0].params.memory_total).toBeGreaterThan(0);
    const stats = await dom.jobStats(JobStatsFlag.COMPLETED);
    expect(stats.type).toBe(JobType.COMPLETED);
    expect(stats.params.memory_total).toBeGreaterThan(32 * 1024 * 1024);
    expect(await libvirt.saveImageXml(file)).toContain('<name>tree</name>');
  });

  test('forget and redefine', async () => {
    const state = await dom.createSnapshot(snapshotXml(dom, 'state'), DISK);
    const xml = await state.xml();
    await state.delete(SnapshotDelete.METADATA_ONLY);
    expect(await dom.findSnapshot('state')).toBeNull();
    await dom.createSnapshot(xml, SnapshotCreate.REDEFINE | SnapshotCreate.CURRENT);
    expect((await dom.currentSnapshot())?.name).toBe('state');
    await dom.destroy();
    await expect(dom.undefine()).rejects.toMatchObject({ kind: 'libvirt' });
  });
});

describe('block jobs', () => {
  let dom: Domain;
  beforeAll(async () => {
    dom = await guest('jobs');
  });

  test('active commit: ready, pivot', async () => {
    await dom.createSnapshot(snapshotXml(dom, 'top'), DISK | SnapshotCreate.NO_METADATA);
    expect(await dom.blockJobInfo('vda')).toBeNull();
    const ready = jobEvent(dom, 'ready');
    await dom.blockCommit('vda', { base: null, top: null }, BlockCommit.ACTIVE | BlockCommit.SHALLOW);
    const [event] = await ready;
    expect(event).toMatchObject({ disk: 'vda', type: BlockJobType.ACTIVE_COMMIT });
    const info = await dom.blockJobInfo('vda', BlockJobBandwidth.BYTES);
    expect(info?.type).toBe(BlockJobType.ACTIVE_COMMIT);
    expect(info?.cur).toBe(info?.end);
    const done = jobEvent(dom, 'completed');
    await dom.blockJobAbort('vda', BlockJobAbort.PIVOT);
    await done;
    expect(await dom.blockJobInfo('vda')).toBeNull();
    expect(await dom.xml()).not.toContain(overlay(dom, 'top'));
  });

  test('throttled pull: speed, refusal of a second job, abort; then to the end', async () => {
    await dom.createSnapshot(snapshotXml(dom, 'pulled'), DISK | SnapshotCreate.NO_METADATA);
    await dom.blockPull('vda', 4096, BlockPull.BANDWIDTH_BYTES);
    await expect(dom.blockPull('vda')).rejects.toMatchObject({ kind: 'libvirt' });
    await dom.blockJobSetSpeed('vda', 65_536, BlockJobBandwidth.BYTES);
    expect(await dom.blockJobInfo('vda', BlockJobBandwidth.BYTES)).toMatchObject({
      type: BlockJobType.PULL,
      bandwidth: 65_536,
    });
    const canceled = jobEvent(dom, 'canceled');
    await dom.blockJobAbort('vda');
    await canceled;
    const done = jobEvent(dom, 'completed');
    await dom.blockPull('vda');
    await done;
    expect((await dom.blockInfo('vda')).allocation).toBeGreaterThan(4 * 1024 * 1024);
  });

  test('copy with parameters', async () => {
    const target = join(daemon.dir, 'copy.target.qcow2');
    const xml = `<disk type='file'><source file='${target}'/><driver type='qcow2'/></disk>`;
    const ready = jobEvent(dom, 'ready');
    const params = { bandwidthBytesPerSec: 64 << 20, granularityBytes: 65_536, bufferBytes: 1 << 20 };
    await dom.blockCopy('vda', { xml, ...params }, BlockCopy.TRANSIENT_JOB);
    await ready;
    expect((await dom.blockJobInfo('vda', BlockJobBandwidth.BYTES))?.bandwidth).toBe(64 << 20);
    await dom.blockJobAbort('vda', BlockJobAbort.PIVOT);
    expect(await dom.xml()).toContain(target);
  });

  test('sizes and counters', async () => {
    expect((await dom.blockInfo('vda')).capacity).toBe(8 << 20);
    await dom.blockResize('vda', 16 << 20);
    expect((await dom.blockInfo('vda')).capacity).toBe(16 << 20);
    expect((await dom.blockStats('vda')).writeBytes).toBeGreaterThanOrEqual(0);
    await expect(dom.blockInfo('vdz')).rejects.toMatchObject({ code: ErrorCode.INVALID_ARG });
  });
});
