import { expect, test } from '@jest/globals';
import type { Domain } from '@virtkeep/node-libvirt';
import { correctGuestClock } from './clock.ts';

/** A guest whose agent answers as told; its clock stands at 0 until it is set. */
function guest(answers: { set: 'works' | 'works but complains' | 'fails'; deaf?: number }) {
  let deaf = answers.deaf ?? 0;
  let nanoseconds = 0n;
  const agentCommand = async (command: string): Promise<string> => {
    if (deaf > 0) {
      deaf -= 1;
      throw new Error('not connected');
    }
    const time = /"time":(\d+)/.exec(command)?.[1];
    if (time === undefined) return `{"return":${nanoseconds}}`;
    if (answers.set !== 'fails') nanoseconds = BigInt(time);
    if (answers.set !== 'works') throw new Error('no hardware clock');
    return '{"return":{}}';
  };
  return { agentCommand } as unknown as Domain;
}
const { signal } = new AbortController();

test('the clock is set, also when the guest complains or answers late', async () => {
  expect(await correctGuestClock(guest({ set: 'works' }), signal)).toBeNull();
  expect(await correctGuestClock(guest({ set: 'works but complains' }), signal)).toBeNull();
  expect(await correctGuestClock(guest({ set: 'works', deaf: 4 }), signal)).toBeNull();
});

test('it is given up after a while, and says why', async () => {
  expect(await correctGuestClock(guest({ set: 'fails' }), signal, 0)).toBe('no hardware clock');
  expect(await correctGuestClock(guest({ set: 'works', deaf: 99 }), signal, 0)).toBe('not connected');
  await expect(correctGuestClock(guest({ set: 'fails' }), AbortSignal.abort())).rejects.toBeDefined();
});
