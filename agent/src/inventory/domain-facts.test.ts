import { expect, test } from '@jest/globals';
import { type Domain, DomainStateCode, LibvirtError } from '@virtkeep/node-libvirt';
import type { SavedState } from '../snapshots/index.ts';
import { type DomainFacts, readDomainFacts } from './domain-facts.ts';

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
  expect(facts!.savedStates).toMatchObject([{ name: 'odd', current: true, overlays: {} }]);
});
