import { randomUUID } from 'node:crypto';
import { expect, test } from '@jest/globals';
import { type CallContext, Metadata } from 'nice-grpc-common';
import { LockTable } from '../operations/locks.ts';
import type { OperationRunner } from '../operations/runner.ts';
import type { Answer } from '../other-nodes.ts';
import { type DomainServiceOptions, domainService } from './domain-service.ts';
import { domainLocks } from './start-operation.ts';

const XML =
  '<domain xmlns:qemu="http://libvirt.org/schemas/domain/qemu/1.0"><name>vm</name>' +
  '<qemu:commandline><qemu:arg value="secret,data=s3cr3t"/></qemu:commandline></domain>';

test.each([
  ['controller', true],
  ['operator', false],
  ['reader', false],
])('%s sees secrets of a definition: %s', async (role, isShown) => {
  const options = {
    inventory: { domain: (id: string) => ({ id }) },
    workflows: { libvirt: () => ({ domain: () => ({ xml: async () => XML }) }) },
  } as unknown as DomainServiceOptions;
  const peer = encodeURIComponent(JSON.stringify({ subject: 's', serial: 'aa', role }));
  const context = { metadata: Metadata({ 'virtkeep-internal-peer': peer }) } as CallContext;
  const { xml } = await domainService(options).getXml({ id: randomUUID(), inactive: true }, context);
  expect(xml?.includes('s3cr3t')).toBe(isShown);
});

/** A runner that only gives locks, and a domain that is off. */
class Update {
  readonly id = randomUUID();
  readonly locks = new LockTable();
  written: string[] = [];
  meanwhile = () => {};

  /** @param metadata of the domain before @param answer of the other nodes about it */
  run(template = true, metadata = '', answer: Answer = { kind: 'unused' }) {
    const runner = { hold: (kind: string, locks: ReturnType<typeof domainLocks>) => this.hold(kind, locks) };
    const domain = {
      uuid: this.id,
      isActive: async () => false,
      isPersistent: async () => true,
      xml: async () => {
        this.meanwhile();
        return `<domain type='kvm'><name>vm</name><uuid>${this.id}</uuid>${metadata}<memory>1</memory><os><type>hvm</type></os></domain>`;
      },
      setMetadata: async ({ value }: { value: string }) => {
        this.meanwhile();
        this.written.push(value);
      },
    };
    const options = {
      inventory: { domain: (id: string) => ({ id }), domains: () => [], refreshDomain: async () => {} },
      runner: runner as unknown as OperationRunner,
      workflows: {
        libvirt: () => ({ domain: () => domain, domains: async () => [] }),
        otherNodes: { whoUses: async () => [answer] },
      },
    } as unknown as DomainServiceOptions;
    const request = { domainId: this.id, template, description: undefined };
    return domainService(options).update(request, { signal: new AbortController().signal } as CallContext);
  }

  hold(kind: string, locks: ReturnType<typeof domainLocks>): () => void {
    const operationId = randomUUID();
    this.locks.acquire({ operationId, kind }, locks);
    return () => this.locks.release(operationId);
  }
}

test('no clone begins, and nothing starts the domain, between reading and writing its metadata', async () => {
  const update = new Update();
  const refused: unknown[] = [];
  update.meanwhile = () => {
    for (const locks of [domainLocks(update.id, ['domain'], 'shared'), domainLocks(update.id, ['power'])])
      try {
        update.hold('other', locks);
        refused.push(undefined);
      } catch (error) {
        refused.push(error);
      }
  };
  await update.run();
  expect(update.written).toEqual([expect.stringContaining('template')]);
  const busy = expect.objectContaining({
    msgKey: 'domain_busy',
    params: expect.objectContaining({ kind: 'update_domain' }),
  });
  expect(refused).toEqual([busy, busy, busy, busy]);
  expect(() => update.hold('other', domainLocks(update.id, ['domain', 'power']))).not.toThrow();
});

test('a domain that is held is not changed', async () => {
  const update = new Update();
  update.hold('clone_domain', domainLocks(update.id, ['domain', 'power'], 'shared'));
  await expect(update.run()).rejects.toMatchObject({
    msgKey: 'domain_busy',
    params: { kind: 'clone_domain' },
  });
  expect(update.written).toEqual([]);
});

test('a template is not unmarked while another node has a thin clone of it: it could be started then', async () => {
  const metadata = `<metadata><v:domain xmlns:v='urn:virtkeep:domain:1' template='yes' version='1'/></metadata>`;
  const by = { nodeName: 'two', domainId: randomUUID(), domainName: 'thin' };
  const update = new Update();
  await expect(update.run(false, metadata, { kind: 'used', by })).rejects.toMatchObject({
    msgKey: 'template_has_clones',
    params: { clones: 'thin on the node two', action: 'unmarked' },
  });
  expect(update.written).toEqual([]);
  await update.run(false, metadata);
  expect(update.written).toHaveLength(1);
});
