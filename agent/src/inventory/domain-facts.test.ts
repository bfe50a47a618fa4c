import { expect, test } from '@jest/globals';
import { type Domain, DomainStateCode, LibvirtError } from '@virtkeep/node-libvirt';
import { PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { lentDiskXml } from '../domain-xml/index.ts';
import type { SavedState } from '../snapshots/index.ts';
import { type DomainFacts, readDomainFacts } from './domain-facts.ts';
import { domainMessage } from './messages.ts';

const INVALID_ARG = 8;
const OPERATION_FAILED = 9;
const BEFORE = { savedStates: [{ name: 'kept' } as SavedState] } as DomainFacts;

/** A domain whose states libvirt does not list. */
function domainWithout(code: number): Domain {
  const fields = { code, domain: 10, level: 2, kind: 'libvirt', message: 'name must not be NULL' } as const;
  const domain = {
    uuid: 'id',
    name: 'vm',
    state: async () => ({ state: DomainStateCode.RUNNING }),
    xml: async () => '<domain/>',
    isPersistent: async () => true,
    snapshots: async () => {
      throw new LibvirtError(fields, 'virDomainListAllSnapshots');
    },
  };
  return domain as unknown as Domain;
}

test('states that libvirt does not list while it makes one are those of before', async () => {
  const facts = await readDomainFacts(domainWithout(INVALID_ARG), BEFORE);
  expect(facts).toMatchObject({ name: 'vm', savedStates: [{ name: 'kept' }] });
});

test('a domain never read before, and any other failure, is not guessed at', async () => {
  await expect(readDomainFacts(domainWithout(INVALID_ARG))).rejects.toMatchObject({ code: INVALID_ARG });
  await expect(readDomainFacts(domainWithout(OPERATION_FAILED), BEFORE)).rejects.toMatchObject({
    code: OPERATION_FAILED,
  });
});

test('a state that cannot be read is listed by its name, and does not hide its node', async () => {
  const state = { name: 'odd', xml: async () => `<domainsnapshot>${'<a>'.repeat(100)}` };
  const domain = {
    ...domainWithout(0),
    snapshots: async () => [state],
    currentSnapshot: async () => state,
  } as unknown as Domain;
  const facts = await readDomainFacts(domain);
  expect(facts!.savedStates).toMatchObject([{ name: 'odd', current: true, overlays: {}, unread: true }]);
});

test('a state that cannot be read has the time, and so the id, that it has when it is read', async () => {
  const stateWith = (metadata: string) =>
    '<domainsnapshot><name>s</name><description>&lt;creationTime&gt;7&lt;/creationTime&gt;</description>' +
    '<creationTime>1700000000</creationTime><domain type="kvm"><name>vm</name><memory>1</memory>' +
    `<metadata>${metadata}<creationTime>8</creationTime></metadata></domain></domainsnapshot>`;
  const read = async (xml: string) => {
    const state = { name: 's', xml: async () => xml };
    const states = { snapshots: async () => [state], currentSnapshot: async () => null };
    const facts = await readDomainFacts({ ...domainWithout(0), ...states } as unknown as Domain);
    return facts!.savedStates[0]!;
  };
  const unread = await read(stateWith(`${'<a>'.repeat(100)}${'</a>'.repeat(100)}`));
  const { createdUnix, unread: isUnread } = await read(stateWith(''));
  expect(isUnread).toBeUndefined();
  expect(unread).toMatchObject({ unread: true, createdUnix });
});

test('what was told with all others is not asked again, unless it is something new', async () => {
  const asked: string[] = [];
  const tell =
    <T>(what: string, value: T) =>
    async () => {
      asked.push(what);
      return value;
    };
  const domain = {
    uuid: 'id',
    name: 'vm',
    state: tell('state', { state: DomainStateCode.RUNNING }),
    xml: tell('xml', '<domain/>'),
    isPersistent: tell('persistent', true),
    snapshots: tell('states', []),
  } as unknown as Domain;
  const told = { power: PowerState.RUNNING, persistent: true, hasStates: false };
  const first = await readDomainFacts(domain, undefined, told);
  expect(asked.splice(0).sort()).toEqual(['persistent', 'state', 'states', 'xml']);
  expect(await readDomainFacts(domain, first, told)).toBe(first);
  expect(asked.splice(0)).toEqual(['xml']);
  const stale = { power: PowerState.OFF, persistent: false, hasStates: true };
  expect(await readDomainFacts(domain, first, stale)).toBe(first);
  expect(asked.splice(0).sort()).toEqual(['persistent', 'state', 'states', 'xml']);
  expect(await readDomainFacts(domain, first, { ...told, power: undefined })).toBe(first);
  expect(asked.sort()).toEqual(['state', 'xml']);
});

test('a VM whose memory is saved has the disk of another that it goes on with, although its definition has it no more', async () => {
  const id = '11111111-2222-4333-8444-555555555555';
  const note = `<v:attachment disk='${id}' owner='${id}' attached='${id}' target='vdb' path='/pool/frozen'/>`;
  const metadata = `<metadata><v:domain xmlns:v='urn:virtkeep:domain:1'>${note}</v:domain></metadata>`;
  const disk = lentDiskXml({
    diskId: id,
    path: '/pool/frozen',
    format: 'qcow2',
    block: false,
    targetDev: 'vdb',
  });
  const xmlWith = (devices: string) =>
    `<domain type='kvm'><name>vm</name>${metadata}<memory>1</memory><devices>${devices}</devices></domain>`;
  let hasSaved = true;
  const domain = {
    ...domainWithout(0),
    state: async () => ({ state: DomainStateCode.SHUTOFF }),
    xml: async () => xmlWith(''),
    snapshots: async () => [],
    hasManagedSave: async () => hasSaved,
    managedSaveXml: async () => xmlWith(disk),
  } as unknown as Domain;
  const attached = async () => {
    const facts = await readDomainFacts(domain);
    const { attachments } = domainMessage(facts!, { pools: [], disks: undefined, lockedBy: '' });
    return attachments.map(({ diskId, targetDev }) => [diskId, targetDev]);
  };
  expect(await attached()).toEqual([[id, 'vdb']]);
  hasSaved = false;
  expect(await attached()).toEqual([]);
});
