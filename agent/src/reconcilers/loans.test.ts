import { expect, test } from '@jest/globals';
import { DomainStateCode, type Libvirt } from '@virtkeep/node-libvirt';
import type { Logger } from '@virtkeep/shared/log';
import type { OperationRunner, StartOptions } from '../operations/runner.ts';
import { NO_OTHER_NODES } from '../other-nodes.ts';
import type { WorkflowDependencies } from '../workflows/dependencies.ts';
import { LoanReconciler } from './loans.ts';

const OWNER = '11111111-2222-4333-8444-555555555555';
const GONE = '21111111-2222-4333-8444-555555555555';
const DISK = '31111111-2222-4333-8444-555555555555';

const ownerXml = `<domain type='kvm'><name>vm</name><uuid>${OWNER}</uuid><memory>1</memory><os><type>hvm</type></os><metadata>
  <v:domain xmlns:v='urn:virtkeep:domain:1'><v:loan disk='${DISK}' borrower='${GONE}'/></v:domain></metadata></domain>`;

const idleXml = ownerXml.replace(/<v:loan .*\/>/, '');

/**
 * What the reconciler starts about an owner whose borrower is gone, and how often it had looked then.
 * @param looks the owner's definition at each look; the last one stays
 */
async function started(isActive: boolean, looks = [ownerXml]): Promise<StartOptions & { looks: number }> {
  let looked = 0;
  const state = isActive ? DomainStateCode.RUNNING : DomainStateCode.SHUTOFF;
  const owner = {
    uuid: OWNER,
    name: 'vm',
    isActive: async () => isActive,
    isPersistent: async () => true,
    state: async () => ({ state }),
    hasManagedSave: async () => false,
    xml: async () => looks[Math.min(looked, looks.length) - 1]!,
    findSnapshot: async () => null,
    currentSnapshot: async () => null,
    snapshots: async () => [],
  };
  const domains = async () => {
    looked += 1;
    return [owner];
  };
  const libvirt = { domains, domainByUuid: async () => owner, on: () => () => {} };
  const log = { info: () => {}, warn: () => {} } as unknown as Logger;
  const { promise, resolve } = Promise.withResolvers<StartOptions>();
  const reconciler = new LoanReconciler({
    link: { connected: true, get: () => libvirt as unknown as Libvirt, onChange: () => () => {} },
    runner: { draining: false, start: resolve } as unknown as OperationRunner,
    workflows: {
      ...{ zfs: {}, libvirt: () => libvirt, pools: async () => [], otherNodes: NO_OTHER_NODES },
    } as unknown as WorkflowDependencies,
    log,
    retryMs: 1,
  });
  reconciler.start();
  const options = await promise.finally(() => reconciler.stop());
  return { ...options, looks: looked };
}

test('what a look finds in the middle of a lending, and the next one does not, keeps nobody from the VMs', async () => {
  const { looks } = await started(true, [ownerXml, idleXml, ownerXml, ownerXml]);
  expect(looks).toBe(4);
});

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
