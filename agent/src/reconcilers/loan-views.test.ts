import { mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { DomainStateCode, type Libvirt } from '@virtkeep/node-libvirt';
import { readViews, SeenParties } from './loan-views.ts';

const OWNER = '11111111-2222-4333-8444-555555555555';
const ODD = '21111111-2222-4333-8444-555555555555';
const TOO_DEEP = `${'<a>'.repeat(70)}${'</a>'.repeat(70)}`;

let directory: string;
beforeEach(() => {
  directory = realpathSync(mkdtempSync(join(tmpdir(), 'views-')));
  for (const name of ['layer', 'other']) writeFileSync(join(directory, name), '');
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

function domainWith(uuid: string, file: string, metadata = '') {
  const xml =
    `<domain type='kvm'><name>vm</name><uuid>${uuid}</uuid><metadata>${metadata}</metadata><memory>1</memory>` +
    `<os><type>hvm</type></os><devices><disk type='file' device='disk'><source file='${join(directory, file)}'/>` +
    `<target dev='vda'/></disk></devices></domain>`;
  return {
    uuid,
    name: 'vm',
    isActive: async () => false,
    isPersistent: async () => true,
    state: async () => ({ state: DomainStateCode.SHUTOFF }),
    xml: async () => xml,
    hasManagedSave: async () => false,
    snapshots: async () => [],
    findSnapshot: async () => (uuid === OWNER ? {} : null),
  };
}

async function ownersThatOddNames(file: string, metadata = '') {
  const odd = domainWith(ODD, file, `<x:y xmlns:x='urn:x'>${metadata}${TOO_DEEP}</x:y>`);
  const domains = [domainWith(OWNER, 'layer'), odd];
  const domain = (id: string) => domains.find(({ uuid }) => uuid === id)!;
  const libvirt = { domains: async () => domains, domain, domainByUuid: async (id: string) => domain(id) };
  const zfs = { releasable: new Set<string>(), hasClone: () => false };
  const { views, unread } = await readViews(libvirt as unknown as Libvirt, zfs, async () => []);
  expect(views.map(({ id }) => id)).toEqual([OWNER]);
  expect([...unread.keys()]).toEqual([ODD]);
  return [...unread.get(ODD)!];
}

test('a domain that cannot be read may have a disk of an owner whose file, or id, stands in its text', async () => {
  expect(await ownersThatOddNames('layer')).toEqual([OWNER]);
  expect(await ownersThatOddNames('other', `<attachment owner='${OWNER}'/>`)).toEqual([OWNER]);
  expect(await ownersThatOddNames('other')).toEqual([]);
});

test('of all domains those alone are read again that have changed, also while they were read', async () => {
  const read: string[] = [];
  const seen = new SeenParties();
  let meanwhile = () => {};
  const domains = [OWNER, ODD].map(uuid => {
    const domain = domainWith(uuid, 'layer');
    const findSnapshot = async () => {
      read.push(uuid);
      meanwhile();
      return domain.findSnapshot();
    };
    return { ...domain, findSnapshot };
  });
  const domain = async (id: string) => domains.find(({ uuid }) => uuid === id)!;
  const libvirt = { domains: async () => domains, domainByUuid: domain } as unknown as Libvirt;
  const zfs = { releasable: new Set<string>([ODD]), hasClone: () => false };
  const look = async () => {
    read.length = 0;
    const { views } = await readViews(libvirt, zfs, async () => [], seen);
    expect(views.map(({ id, hasInstant }) => [id, hasInstant])).toEqual([
      [OWNER, true],
      [ODD, true],
    ]);
    return [...read];
  };
  expect(await look()).toEqual([OWNER, ODD]);
  expect(await look()).toEqual([]);
  seen.changed(ODD);
  meanwhile = () => seen.changed(ODD);
  expect(await look()).toEqual([ODD]);
  meanwhile = () => {};
  expect(await look()).toEqual([ODD]);
  expect(await look()).toEqual([]);
  seen.forget();
  expect(await look()).toEqual([OWNER, ODD]);
});
