import { describe, expect, test } from '@jest/globals';
import { deviceDifferences } from './compare.ts';
import { editDomain } from './edit.ts';
import * as xml from './index.ts';
import { LIVE_XML, SNAPSHOT_XML, UUID } from './sample-xml.ts';

const NEW_UUID = 'eeeeeeee-2222-4333-8444-555555555555';
const setIdentity = (text: string, identity: xml.Identity) =>
  editDomain(text, domain => xml.applyIdentity(domain, identity));
const setDiskSource = (text: string, target: string, source: { path: string; format: string }) =>
  editDomain(text, domain => xml.applySource(xml.diskElement(domain, target), source));
const setCdromSource = (text: string, target: string, path: string | null) =>
  editDomain(text, domain => xml.applyImage(xml.diskElement(domain, target), path));
const removeDisk = (text: string, target: string) =>
  editDomain(text, domain => xml.remove(xml.diskElement(domain, target)));
const replacePaths = (text: string, paths: ReadonlyMap<string, string>) =>
  editDomain(text, domain => xml.applyPaths(domain, paths));
const disk = (text: string, target: string) =>
  xml.parseDomain(text).disks.find(item => item.targetDev === target);

describe('edits of a domain', () => {
  test('an edit preserves all else', () => {
    const same = xml.setMetadata(LIVE_XML, xml.parseDomain(LIVE_XML).metadata);
    expect(xml.parseDomain(same)).toEqual(xml.parseDomain(LIVE_XML));
    expect(same).toContain('<qemu:arg value="-snapshot"/>');
    expect(same).toContain('two&#13;\nlines');
    expect(deviceDifferences(same, LIVE_XML)).toEqual([]);
  });

  test('how far a merge is survives; what holds for one run of a domain alone is in no definition', () => {
    const layer = { targetDev: 'vda', path: '/a', overlay: true, merging: '/b' };
    const looseLayers: xml.LooseLayer[] = [
      { ...layer, stage: 'merged' },
      { ...layer, path: '/c', stage: 'live' },
      { ...layer, path: '/d', stage: 'begun', reader: '/e' },
      { ...layer, path: '/f' },
    ];
    const next = xml.setMetadata(LIVE_XML, { ...xml.NO_METADATA, looseLayers });
    const lasting = looseLayers.map(loose => (loose.stage === 'live' ? { ...loose, stage: 'begun' } : loose));
    expect(xml.parseDomain(next).metadata.looseLayers).toEqual(lasting);
  });

  test('what is known of lent files survives; what is no mark is not believed', () => {
    const lentLayers: xml.LentLayer[] = [
      { path: '/a.top', below: '/a', mark: '12:196616:1764450000123456789' },
      { path: '/b.top', below: '/b', mark: '13:0:0', moving: true },
    ];
    const next = xml.setMetadata(LIVE_XML, { ...xml.NO_METADATA, lentLayers });
    expect(xml.parseDomain(next).metadata).toEqual({ ...xml.NO_METADATA, lentLayers });
    const other = xml.parseDomain(next.replace('13:0:0', '13:x:0')).metadata.lentLayers;
    expect(other).toEqual(lentLayers.slice(0, 1));
    expect(xml.metadataElement({ ...xml.NO_METADATA, lentLayers: [] })).toBeNull();
  });

  test('an identity changes name, uuid, SMBIOS uuid, MACs, and asks for a new generation id', () => {
    const macs = xml.newMacs(['52:54:00:AA:BB:CC'], () => Buffer.from([1, 2, 3]));
    const next = setIdentity(LIVE_XML, { name: 'a<b', uuid: NEW_UUID, macs });
    expect(xml.parseDomain(next)).toMatchObject({ name: 'a<b', uuid: NEW_UUID });
    expect(xml.parseDomain(next).interfaces[0]?.mac).toBe('52:54:00:01:02:03');
    expect(next).not.toContain(`${UUID}</uuid>`);
    expect(next).toContain(`<entry name="uuid">${NEW_UUID}</entry>`);
    expect(next).toContain('<genid/>');
    expect(setIdentity(LIVE_XML, { name: 'x', uuid: UUID })).toContain('<genid>9999');
  });

  test('an identity gives a uuid to a domain without one, in its place', () => {
    const next = setIdentity('<domain><name>x</name><memory>1</memory></domain>', {
      name: 'y',
      uuid: UUID,
    });
    expect(next).toBe(`<domain><name>y</name><uuid>${UUID}</uuid><memory>1</memory></domain>`);
  });

  test.each(['vda', 'vdb', 'vdc'])('a source turns %s into a file', target => {
    const next = setDiskSource(LIVE_XML, target, { path: '/new/d.qcow2', format: 'qcow2' });
    expect(disk(next, target)).toMatchObject({
      type: 'file',
      path: '/new/d.qcow2',
      format: 'qcow2',
      backingChain: undefined,
    });
    expect(next).toContain('/dev/sdx');
    if (target === 'vda') expect(disk(next, target)).toMatchObject({ cache: 'none', serial: 'S1' });
    if (target === 'vdb') expect(next).not.toContain('<auth');
  });

  test('an image changes, fills and empties a drive', () => {
    const empty = setCdromSource(LIVE_XML, 'sdb', null);
    expect(disk(empty, 'sdb')).toMatchObject({ source: '', readonly: true });
    expect(disk(setCdromSource(empty, 'sdb', '/i/b.iso'), 'sdb')?.path).toBe('/i/b.iso');
    expect(setCdromSource(LIVE_XML, 'sdb', '/i/b.iso')).toContain('startupPolicy="optional"');
  });

  test('removal takes out that disk; an unknown one is refused', () => {
    const next = removeDisk(LIVE_XML, 'sda');
    expect(xml.parseDomain(next).disks.map(item => item.targetDev)).toEqual(['vda', 'sdb', 'vdb', 'vdc']);
    expect(() => removeDisk(LIVE_XML, 'zz')).toThrow(expect.objectContaining({ msgKey: 'xml_invalid' }));
  });

  test('stripBackingStore drops the chains and keeps the sources', () => {
    const next = xml.stripBackingStore(LIVE_XML);
    expect(next).not.toContain('backingStore');
    expect(disk(next, 'vda')).toMatchObject({ path: '/pool/top.qcow2', backingChain: undefined });
  });

  test('setNvram sets, adds and resets', () => {
    expect(xml.parseDomain(xml.setNvram(LIVE_XML, '/n/v.fd')).nvram?.path).toBe('/n/v.fd');
    const reset = xml.setNvram(LIVE_XML, null);
    expect(xml.parseDomain(reset).nvram).toEqual({
      path: undefined,
      template: '/usr/share/OVMF/OVMF_VARS.fd',
      byName: true,
    });
    const bare = '<domain><name>x</name><os><loader>/l</loader><boot dev="hd"/></os></domain>';
    expect(xml.setNvram(bare, '/n')).toContain('<loader>/l</loader><nvram>/n</nvram><boot');
  });

  test('setNvram knows the form with a source', () => {
    const form = '<domain><name>x</name><os><nvram type="file"><source file="/a"/></nvram></os></domain>';
    expect(xml.parseDomain(xml.setNvram(form, '/b')).nvram?.path).toBe('/b');
    expect(xml.parseDomain(form).nvram?.path).toBe('/a');
  });

  test.each([
    ['as they are', LIVE_XML],
    ['another spelling', LIVE_XML.replaceAll('/pool/', '/pool//').replace('nvram/web', 'nvram/./web')],
  ])('new paths follow chains and NVRAM; %s', (_, text) => {
    const paths = new Map([
      ['/pool/base.img', '/p2/base.img'],
      ['/var/lib/libvirt/qemu/nvram/web_VARS.fd', '/p2/v.fd'],
    ]);
    const next = xml.parseDomain(replacePaths(text, paths));
    expect(next.disks[0]?.backingChain?.map(layer => layer.path)).toEqual([
      '/pool/mid.qcow2',
      '/p2/base.img',
    ]);
    expect(next.nvram?.path).toBe('/p2/v.fd');
  });

  test('stripRuntime leaves a definition', () => {
    const next = xml.stripRuntime(LIVE_XML);
    for (const gone of [
      'id="7"',
      'virtio-disk0',
      'backingStore',
      'index=',
      'seclabel',
      '/run/libvirt',
      'state="conn',
      'vnet3',
      'pts',
      'port="5900"',
    ]) {
      expect(next).not.toContain(gone);
    }
    expect(next).toContain('ua-mine');
    expect(xml.parseDomain(next).agentChannel).toBe('present');
  });

  test('metadata is written, replaced and removed without touching others', () => {
    const { parent: _, ...others } = xml.parseDomain(LIVE_XML).metadata;
    const metadata = { ...others, template: false };
    const next = xml.setMetadata(LIVE_XML, metadata);
    expect(xml.parseDomain(next).metadata).toEqual(metadata);
    expect(xml.parseDomain(next).os.version).toBe('debian/12');
    const none = xml.setMetadata(next, xml.NO_METADATA);
    expect(none).not.toContain('urn:virtkeep');
    const fresh = xml.setMetadata('<domain><name>x</name><memory>1</memory></domain>', {
      ...xml.NO_METADATA,
      template: true,
    });
    expect(xml.parseDomain(fresh).metadata.template).toBe(true);
    expect(xml.metadataElement(xml.NO_METADATA)).toBeNull();
    expect(xml.metadataElement({ ...xml.NO_METADATA, template: true })).toBe('<domain template="yes"/>');
  });
});

describe('editSnapshot', () => {
  test('follows identity, paths and parent', () => {
    const next = xml.editSnapshot(SNAPSHOT_XML, {
      identity: { name: 'copy', uuid: NEW_UUID, macs: new Map([['52:54:00:aa:bb:cc', '52:54:00:00:00:01']]) },
      paths: new Map([
        ['/pool/top.qcow2', '/p2/top'],
        ['/pool/mid.qcow2', '/p2/mid'],
        ['/pool/second.memory', '/p2/mem'],
      ]),
      parent: null,
    });
    const state = xml.parseSnapshot(next);
    expect(state).toMatchObject({ parent: undefined, memory: { path: '/p2/mem' } });
    expect(state.disks[0]?.path).toBe('/p2/top');
    expect(state.domain).toMatchObject({ name: 'copy', uuid: NEW_UUID });
    expect(state.domain?.disks[0]).toMatchObject({ path: '/p2/mid', backingChain: undefined });
    expect(state.domain?.interfaces[0]?.mac).toBe('52:54:00:00:00:01');
    expect(xml.parseSnapshot(xml.editSnapshot(next, { parent: 'p' })).parent).toBe('p');
  });
});

describe('deviceDifferences', () => {
  test('a restored copy is the same machine', () => {
    let copy = setIdentity(LIVE_XML, {
      name: 'c',
      uuid: NEW_UUID,
      macs: xml.newMacs(['52:54:00:aa:bb:cc']),
    });
    for (const target of ['vda', 'vdb', 'vdc'])
      copy = setDiskSource(copy, target, { path: `/n/${target}`, format: 'qcow2' });
    copy = xml.setNvram(xml.stripRuntime(copy), '/n/v.fd');
    const differences = deviceDifferences(LIVE_XML, copy);
    // the network disk's protocol and credentials, and the volume disk's missing driver, are real differences
    expect(differences.filter(line => !/"vd[bc]"/.test(line))).toEqual([]);
  });

  test('sees a lost device, another bus and other memory', () => {
    expect(deviceDifferences(LIVE_XML, removeDisk(LIVE_XML, 'sda'))).toHaveLength(1);
    expect(deviceDifferences(LIVE_XML, LIVE_XML.replace("bus='sata'", "bus='ide'"))).toHaveLength(2);
    expect(
      deviceDifferences(LIVE_XML, LIVE_XML.replace("<memory unit='KiB'>131073", "<memory unit='KiB'>5")),
    ).toHaveLength(2);
  });
});
