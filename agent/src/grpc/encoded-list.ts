/**
 * The list of domains, put together of messages that were encoded when they changed: what a list costs does not depend on how
 * much the domains and their guests have to tell, and it leaves no garbage behind that would have to be collected.
 */
import {
  Domain,
  DomainServiceDefinition,
  ListDomainsResponse,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { encodedForm } from '../inventory/index.ts';

type Answer = Parameters<typeof ListDomainsResponse.fromPartial>[0];
type AnsweredDomain = NonNullable<Answer['domains']>[number];

/** Field `domains` of the answer, a message of its own length. */
const DOMAINS_TAG = 0x0a;

/** The answer on the wire. Domains that are not shown by the inventory are encoded now. */
export function encodeList({ domains = [] }: Answer): Uint8Array {
  return Buffer.concat(
    domains.flatMap(domain => {
      const bytes = bytesOf(domain);
      return [fieldHead(bytes.length), bytes];
    }),
  );
}

function bytesOf(domain: AnsweredDomain): Uint8Array {
  return encodedForm(domain) ?? Domain.encode(Domain.fromPartial(domain)).finish();
}

/** Tag and length of a field. */
function fieldHead(length: number): Uint8Array {
  const head = [DOMAINS_TAG];
  let rest = length;
  for (; rest > 0x7f; rest = Math.floor(rest / 0x80)) head.push((rest & 0x7f) | 0x80);
  return Uint8Array.from([...head, rest]);
}

const { list, ...others } = DomainServiceDefinition.methods;

/** The service as the contract has it; its lists are encoded by `encodeList`. */
export const LeanDomainService = {
  ...DomainServiceDefinition,
  methods: {
    ...others,
    list: {
      ...list,
      responseType: {
        decode: ListDomainsResponse.decode,
        fromPartial: (answer: Answer): Answer => answer,
        encode: (answer: Answer) => ({ finish: () => encodeList(answer) }),
      },
    },
  },
} as const;
