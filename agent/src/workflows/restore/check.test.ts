import { expect, test } from '@jest/globals';
import type { Libvirt } from '@virtkeep/node-libvirt';
import { filesOfOriginal } from './check.ts';

const UUID = '11111111-2222-4333-8444-555555555555';
const domainOf = (path: string, tag = 'domain') =>
  `<${tag} type='kvm'><name>vm</name><uuid>${UUID}</uuid><memory>1024</memory><os><type>hvm</type></os><devices><disk type='file' device='disk'><source file='${path}'/><target dev='vda' bus='virtio'/></disk></devices></${tag}>`;
const stateOf = (content: string) =>
  `<domainsnapshot><name>s1</name><creationTime>1</creationTime>${content}</domainsnapshot>`;

const filesWith = async (...states: string[]) => {
  const snapshots = states.map(xml => ({ xml: async () => xml }));
  const domain = { xml: async () => domainOf('/pool/now'), snapshots: async () => snapshots };
  const libvirt = { domainByUuid: async () => domain } as unknown as Libvirt;
  return [...(await filesOfOriginal(libvirt, UUID))];
};

test('the files of a VM are those of its saved states, too', async () => {
  const states = [
    stateOf(`${domainOf('/pool/first')}${domainOf('/pool/other', 'inactiveDomain')}`),
    stateOf(domainOf('/pool/second')),
    stateOf(''),
  ];
  expect(await filesWith(...states)).toEqual(['/pool/now', '/pool/first', '/pool/second']);
});

test('a saved state in which millions of definitions seem to begin is read once', async () => {
  const comment = `<!-- ${'<domain '.repeat(800_000)} -->`;
  expect(await filesWith(stateOf(`${domainOf('/pool/first')}${comment}`))).toEqual([
    '/pool/now',
    '/pool/first',
  ]);
});
