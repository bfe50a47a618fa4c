import { randomUUID } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import {
  Affect,
  DomainShutdown,
  DomainStart,
  DomainStateCode,
  DomainUndefine,
  DomainXml,
  ErrorCode,
  ErrorDomain,
  type Libvirt,
  ListDomains,
  MetadataType,
  SaveRestore,
} from '../src/index.ts';
import { diskXml, guestXml, qcow2, removeAll } from './guests.ts';
import { TestLibvirtd } from './libvirtd.ts';

let daemon: TestLibvirtd;
let libvirt: Libvirt;
const NONE = '00000000-0000-4000-8000-000000000000';

beforeAll(async () => {
  daemon = await TestLibvirtd.start();
  libvirt = await daemon.connect();
});
afterEach(() => removeAll(libvirt));
afterAll(async () => {
  await daemon?.stop();
  await libvirt?.close();
});

describe('host', () => {
  test('tells versions, names and capabilities', async () => {
    const versions = await libvirt.versions();
    for (const version of Object.values(versions)) expect(version).toMatch(/^\d+\.\d+\.\d+$/);
    expect(await libvirt.hostUuid()).toBe(daemon.hostUuid);
    expect(await libvirt.hostname()).not.toBe('');
    expect(await libvirt.domainCapabilities({ arch: 'x86_64', virtType: 'qemu' })).toContain(
      '<domainCapabilities>',
    );
    const node = await libvirt.nodeInfo();
    expect(node.cpuModel).toBe('x86_64');
    expect(node.cpus).toBeGreaterThan(0);
    expect(await libvirt.freeMemory()).toBeGreaterThan(1 << 20);
    expect(libvirt.connected).toBe(true);
    expect(libvirt.uri).toBe(daemon.uri);
  });
});

describe('lookup', () => {
  test('lists and finds domains', async () => {
    const a = await libvirt.defineDomain(guestXml('a'));
    const b = await libvirt.createDomain(guestXml('b'), DomainStart.PAUSED);
    const names = async (filter?: number) => (await libvirt.domains(filter)).map(d => d.name).sort();
    expect(await names()).toEqual(['a', 'b']);
    expect(await names(ListDomains.ACTIVE)).toEqual(['b']);
    expect(await names(ListDomains.PERSISTENT)).toEqual(['a']);
    const { RUNNING, PAUSED, SHUTOFF } = ListDomains;
    expect(await Promise.all([RUNNING, PAUSED, SHUTOFF].map(names))).toEqual([[], ['b'], ['a']]);
    await b.resume();
    expect(await Promise.all([RUNNING, PAUSED].map(names))).toEqual([['b'], []]);
    await b.suspend();
    expect((await libvirt.domainByName('a')).uuid).toBe(a.uuid);
    expect((await libvirt.domainByUuid(b.uuid)).name).toBe('b');
    expect([await a.isActive(), await a.isPersistent()]).toEqual([false, true]);
    expect([await b.isActive(), await b.isPersistent(), await b.isUpdated()]).toEqual([true, false, false]);
    expect((await b.state()).state).toBe(DomainStateCode.PAUSED);
    const stats = await libvirt.domainStats();
    expect(stats.find(s => s.uuid === b.uuid)?.params['state.state']).toBe(DomainStateCode.PAUSED);
    expect(stats.find(s => s.uuid === a.uuid)?.id).toBe(-1);
  });

  test('errors carry code, domain, message and call', async () => {
    const noDomain = {
      name: 'LibvirtError',
      kind: 'libvirt',
      code: ErrorCode.NO_DOMAIN,
      domain: ErrorDomain.QEMU,
    };
    await expect(libvirt.domainByName('none')).rejects.toMatchObject({
      ...noDomain,
      call: 'virDomainLookupByName',
      message: expect.stringContaining('none'),
    });
    await expect(libvirt.domain(NONE).xml()).rejects.toMatchObject({
      ...noDomain,
      call: 'virDomainGetXMLDesc',
    });
    await expect(libvirt.domain('not-a-uuid').state()).rejects.toMatchObject({ code: ErrorCode.INVALID_ARG });
    await expect(libvirt.defineDomain('<domain')).rejects.toMatchObject({ code: ErrorCode.XML_DETAIL });
    await expect(libvirt.domainByName('a\0b')).rejects.toMatchObject({ code: ErrorCode.INVALID_ARG });
    await expect(libvirt.domainByName(7 as never)).rejects.toMatchObject({ code: ErrorCode.INVALID_ARG });
    const dom = await libvirt.defineDomain(guestXml('off'));
    await expect(dom.destroy()).rejects.toMatchObject({ code: ErrorCode.OPERATION_INVALID });
    await expect(dom.abortJob()).rejects.toMatchObject({ code: ErrorCode.OPERATION_INVALID });
  });

  test('a read-only connection cannot change anything', async () => {
    const reader = await daemon.connect({ readOnly: true, events: false });
    await expect(reader.defineDomain(guestXml('a'))).rejects.toMatchObject({
      code: ErrorCode.OPERATION_DENIED,
    });
    await reader.close();
  });
});

describe('definition', () => {
  test('XML, metadata, autostart, rename', async () => {
    const dom = await libvirt.defineDomain(guestXml('ünïcode-名前'));
    expect(dom.name).toBe('ünïcode-名前');
    const uri = 'http://example.org/test/1';
    expect(await dom.metadata(MetadataType.ELEMENT, uri)).toBeNull();
    const changed = libvirt.waitFor('metadataChange', e => e.uri === uri, { timeoutMs: 240_000 });
    await dom.setMetadata({ type: MetadataType.ELEMENT, value: '<x a="1"/>', key: 't', uri }, Affect.CONFIG);
    expect((await changed)[0].uuid).toBe(dom.uuid);
    expect(await dom.metadata(MetadataType.ELEMENT, uri)).toContain('a="1"');
    expect(await dom.xml(DomainXml.INACTIVE | DomainXml.SECURE)).toContain(
      't:x xmlns:t="http://example.org/test/1"',
    );
    await dom.setMetadata({ type: MetadataType.ELEMENT, value: null, uri }, Affect.CONFIG);
    expect(await dom.metadata(MetadataType.ELEMENT, uri)).toBeNull();
    expect(await dom.autostart()).toBe(false);
    await dom.setAutostart(true);
    expect(await dom.autostart()).toBe(true);
    await dom.rename('renamed');
    expect((await libvirt.domainByName('renamed')).uuid).toBe(dom.uuid);
  });
});

test('a domain that others rename, remove, make again and start is found each time by its uuid', async () => {
  const others = await daemon.connect();
  try {
    const uuid = randomUUID();
    const dom = await libvirt.defineDomain(guestXml('first', { uuid }));
    // in each worker that may have kept it
    const looks = () => Promise.all(Array.from({ length: 8 }, () => dom.xml()));
    await looks();
    await others.domain(uuid).rename('second');
    for (const xml of await looks()) expect(xml).toContain('<name>second</name>');
    await others.domain(uuid).undefine();
    for (const look of await Promise.allSettled(Array.from({ length: 8 }, () => dom.isActive())))
      expect(look).toMatchObject({ status: 'rejected', reason: { code: ErrorCode.NO_DOMAIN } });
    await others.createDomain(guestXml('third', { uuid }), DomainStart.PAUSED);
    for (const xml of await looks()) expect(xml).toContain('<name>third</name>');
    expect([await dom.isActive(), await dom.isPersistent()]).toEqual([true, false]);
    await dom.destroy();
  } finally {
    await others.close();
  }
});

describe('power', () => {
  test('each action and its event', async () => {
    const dom = await libvirt.defineDomain(guestXml('power'));
    const event = (name: string) =>
      libvirt.waitFor('lifecycle', e => e.uuid === dom.uuid && e.event === name, { timeoutMs: 240_000 });
    await Promise.all([event('started'), dom.create()]);
    expect((await dom.info()).memoryKiB).toBe(32 * 1024);
    await Promise.all([event('suspended'), dom.suspend()]);
    expect((await dom.state()).state).toBe(DomainStateCode.PAUSED);
    await Promise.all([event('resumed'), dom.resume()]);
    await dom.reset();
    await dom.shutdown(DomainShutdown.ACPI_POWER_BTN);
    await expect(dom.shutdown(DomainShutdown.GUEST_AGENT)).rejects.toMatchObject({ kind: 'libvirt' });
    const rebooted = libvirt.waitFor('reboot', e => e.uuid === dom.uuid, { timeoutMs: 240_000 });
    await dom.reset();
    await rebooted;
    await Promise.all([event('stopped'), dom.destroy()]);
    await Promise.all([event('undefined'), dom.undefine(DomainUndefine.NVRAM)]);
  });

  test('save, look into the file, restore', async () => {
    const dom = await libvirt.defineDomain(guestXml('saved'));
    await dom.create();
    const file = join(daemon.dir, 'saved.mem');
    await dom.save(file);
    expect(await dom.isActive()).toBe(false);
    const xml = await libvirt.saveImageXml(file);
    expect(xml).toContain('<name>saved</name>');
    await libvirt.defineSaveImageXml(file, xml);
    await libvirt.restoreDomain(file, xml, SaveRestore.PAUSED);
    expect((await dom.state()).state).toBe(DomainStateCode.PAUSED);
    await dom.managedSave();
    expect(await dom.hasManagedSave()).toBe(true);
    await expect(dom.undefine()).rejects.toMatchObject({ code: ErrorCode.OPERATION_INVALID });
    await dom.removeManagedSave();
    expect(await dom.hasManagedSave()).toBe(false);
    await expect(libvirt.restoreDomain('/none/such')).rejects.toMatchObject({ kind: 'libvirt' });
  });
});

describe('devices', () => {
  test('attach, update, detach: a removal completes when the guest lets go', async () => {
    const cdrom = (source: string) =>
      `<disk type='file' device='cdrom'><driver name='qemu' type='raw'/>${source}<target dev='hda' bus='ide'/><readonly/></disk>`;
    const dom = await libvirt.defineDomain(guestXml('devices', { devices: cdrom('') }));
    await dom.create();
    const disk = diskXml(await qcow2(daemon.dir, 'hot.qcow2'), 'vdb');
    const added = libvirt.waitFor('deviceAdded', e => e.uuid === dom.uuid, { timeoutMs: 240_000 });
    await dom.attachDevice(disk, Affect.LIVE);
    const [{ alias }] = await added;
    expect(alias).toBe('virtio-disk1');
    const iso = join(daemon.dir, 'hot.iso');
    await writeFile(iso, Buffer.alloc(4096));
    // the firmware resets its drives, which closes a tray that libvirt has just opened
    await dom.suspend();
    await dom.updateDevice(cdrom(`<source file='${iso}'/>`), Affect.LIVE);
    await dom.resume();
    expect(await dom.xml()).toContain(iso);
    const removed = libvirt.waitFor('deviceRemoved', e => e.alias === alias, { timeoutMs: 240_000 });
    const detached = dom.detachDevice(disk, Affect.LIVE);
    // Nobody answers in a guest without an operating system: a reset lets go of the device.
    await dom.blockInfo('vdb');
    await dom.reset();
    await Promise.all([detached, removed]);
    expect(await dom.xml()).not.toContain(`dev='vdb'`);
    await expect(dom.detachDevice(disk, Affect.LIVE)).rejects.toMatchObject({ kind: 'libvirt' });
  });
});
