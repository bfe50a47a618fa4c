import { randomUUID } from 'node:crypto';
import { expect, test } from '@jest/globals';
import { type CallContext, Metadata } from 'nice-grpc-common';
import { type DomainServiceOptions, domainService } from './domain-service.ts';

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
