import { expect, test } from '@jest/globals';
import type { Libvirt } from '@virtkeep/node-libvirt';
import { thinClonesOf } from './family.ts';

const TEMPLATE = '11111111-2222-4333-8444-555555555555';
const ODD = `${'<a>'.repeat(100)}${'</a>'.repeat(100)}`;

function node(...metadata: string[]): Libvirt {
  const domains = metadata.map((text, index) => ({
    uuid: String(index),
    name: `vm-${index}`,
    xml: async () => `<domain><name>vm-${index}</name><metadata>${text}</metadata></domain>`,
  }));
  const domainByUuid = async (id: string) => domains[Number(id)];
  return { domains: async () => domains, domainByUuid } as unknown as Libvirt;
}
const parent = (id: string) =>
  `<v:domain xmlns:v='urn:virtkeep:domain:1'><v:parent id='${id}' name='t' version='1'/></v:domain>`;

test('a domain that cannot be read holds up a template only when it names it', async () => {
  expect(await thinClonesOf(node(ODD, ''), TEMPLATE)).toEqual([]);
  await expect(thinClonesOf(node(ODD + parent(TEMPLATE)), TEMPLATE)).rejects.toMatchObject({
    msgKey: 'xml_invalid',
  });
});
