import { expect, test } from '@jest/globals';
import { PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { domainHome } from './domain-home.ts';

const STATES = { on: PowerState.RUNNING, off: PowerState.OFF, paused: PowerState.SUSPENDED };
type Word = keyof typeof STATES;
const reports = (words: Record<string, Word>) =>
  new Map(Object.entries(words).map(([nodeId, word]) => [nodeId, STATES[word]]));
const twice = { kind: 'twice', nodeIds: ['a', 'b'] };
const unclear = { kind: 'unclear', nodeIds: ['a', 'b'] };

test.each<
  [string, Record<string, Word>, string | undefined, string | null, [string, string | null, object | null]]
>([
  ['one that is off', { a: 'off' }, undefined, null, ['a', null, null]],
  ['one that runs', { a: 'on' }, undefined, null, ['a', 'a', null]],
  ['the only one left, which never ran', { b: 'off' }, 'a', 'a', ['b', 'a', null]],
  ['the running one, not the one before', { a: 'off', b: 'on' }, 'a', 'a', ['b', 'b', null]],
  ['the suspended one', { a: 'off', b: 'paused' }, 'a', 'a', ['b', 'b', null]],
  ['the running one, while it moves', { a: 'on', b: 'paused' }, 'b', 'b', ['a', 'a', null]],
  ['the one that ran last', { a: 'off', b: 'off' }, 'a', 'b', ['b', 'b', null]],
  ['none, when the one that ran last is gone', { a: 'off', b: 'off' }, 'b', 'c', ['b', 'c', unclear]],
  ['none, when none ever ran', { a: 'off', b: 'off' }, undefined, null, ['a', null, unclear]],
  ['none, when both run', { a: 'on', b: 'on' }, 'b', 'b', ['b', 'b', twice]],
  ['none, when both are suspended', { a: 'paused', b: 'paused' }, undefined, null, ['a', 'a', twice]],
])('the VM is %s', (...row) => {
  const [, words, before, ranOn, [nodeId, ran, conflict]] = row;
  const known = before === undefined ? undefined : { nodeId: before, ranOn };
  expect(domainHome(reports(words), known)).toEqual({ nodeId, ranOn: ran, conflict });
});
