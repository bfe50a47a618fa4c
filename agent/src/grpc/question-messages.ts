/** Questions about the other nodes as messages. What a later controller says and this version does not know is unknown. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { FoundUse, Thing as ThingMessage, UseAnswer } from '@virtkeep/shared/gen/virtkeep/agent/v1/node';
import type { Answer, Thing, Use } from '../other-nodes.ts';

export function thingMessage(thing: Thing): ThingMessage {
  if (thing.kind === 'file')
    return { thing: { $case: 'file', value: { poolId: thing.poolId, path: thing.path } } };
  if (thing.kind === 'device') return { thing: { $case: 'device', value: thing.key } };
  return { thing: { $case: 'domain', value: thing.id } };
}

/** @throws VirtkeepError invalid_field for a kind of thing that this version does not know */
export function thingOf({ thing }: ThingMessage): Thing {
  switch (thing?.$case) {
    case 'file':
      return { kind: 'file', ...thing.value };
    case 'device':
      return { kind: 'device', key: thing.value };
    case 'domain':
      return { kind: 'domain', id: thing.value };
    case undefined:
      throw new VirtkeepError('invalid_field', { field: 'things', reason: 'an unknown kind of thing' });
  }
}

export function answerOf({ answer }: UseAnswer): Answer {
  if (answer?.$case === 'unused') return { kind: 'unused' };
  if (answer?.$case === 'used') return { kind: 'used', by: answer.value };
  return { kind: 'unknown', reason: answer?.value ?? 'the controller gave no answer' };
}

export function foundMessage(answer: Omit<Use, 'nodeName'> | { unsure: string } | null): FoundUse {
  if (answer === null) return { use: undefined, unsure: '' };
  if ('unsure' in answer) return { use: undefined, unsure: answer.unsure };
  const { domainId, domainName, active = false } = answer;
  return { use: { nodeName: '', domainId, domainName, active, lastRanHere: false }, unsure: '' };
}
