import { expect, test } from '@jest/globals';
import { DomainStateCode, type Libvirt } from '@virtkeep/node-libvirt';
import type { Logger } from '@virtkeep/shared/log';
import type { OperationRunner, StartOptions } from '../operations/runner.ts';
import type { WorkflowDependencies } from '../workflows/dependencies.ts';
import { LoanReconciler } from './loans.ts';

const OWNER = '11111111-2222-4333-8444-555555555555';
const GONE = '21111111-2222-4333-8444-555555555555';
const DISK = '31111111-2222-4333-8444-555555555555';

const ownerXml = `<domain type='kvm'><name>vm</name><uuid>${OWNER}</uuid><memory>1</memory><os><type>hvm</type></os><metadata>
  <v:domain xmlns:v='urn:virtkeep:domain:1'><v:loan disk='${DISK}' borrower='${GONE}'/></v:domain></metadata></domain>`;

/** What the reconciler starts about an owner whose borrower is gone. */
function started(isActive: boolean): Promise<StartOptions> {
  const state = isActive ? DomainStateCode.RUNNING : DomainStateCode.SHUTOFF;
  const owner = {
    uuid: OWNER,
    name: 'vm',
    isActive: async () => isActive,
    isPersistent: async () => true,
    state: async () => ({ state }),
    xml: async () => ownerXml,
    findSnapshot: async () => ({}),
  };
  const libvirt = { domains: async () => [owner], domainByUuid: async () => owner, on: () => () => {} };
  const log = { info: () => {}, warn: () => {} } as unknown as Logger;
  const { promise, resolve } = Promise.withResolvers<StartOptions>();
  const reconciler = new LoanReconciler({
    link: { connected: true, get: () => libvirt as unknown as Libvirt, onChange: () => () => {} },
    runner: { draining: false, start: resolve } as unknown as OperationRunner,
    workflows: { zfs: {} } as unknown as WorkflowDependencies,
    log,
  });
  reconciler.start();
  return promise.finally(() => reconciler.stop());
}

test.each([
  ['that is off is not started while its state is merged', false, ['power']],
  ['that runs may be switched off', true, []],
])('an owner %s, and nobody else may make the borrower that is gone', async (_, isActive, power) => {
  const { locks, entities } = await started(isActive);
  expect(locks.filter(({ kind }) => kind === 'domain').map(({ id }) => id)).toEqual([OWNER, GONE]);
  expect(locks.filter(({ id, kind }) => id === OWNER && kind === 'power').map(({ kind }) => kind)).toEqual(
    power,
  );
  expect(locks.every(({ mode }) => mode === 'exclusive')).toBe(true);
  expect(entities.map(({ id }) => id)).toEqual([OWNER]);
});
