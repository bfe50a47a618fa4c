import { afterEach, describe, expect, test } from '@jest/globals';
import type { Answer, Thing } from './other-nodes.ts';
import { QuestionChannel } from './question-channel.ts';

const never = new AbortController().signal;
const FILE: Thing = { kind: 'file', poolId: 'p', path: 'a.qcow2' };
const DOMAIN: Thing = { kind: 'domain', id: 'd' };
const UNUSED: Answer = { kind: 'unused' };
const USED: Answer = { kind: 'used', by: { nodeName: 'n2', domainId: 'd', domainName: 'vm' } };

const ends: AbortController[] = [];
afterEach(() => {
  for (const end of ends.splice(0)) end.abort();
});

/** A controller that is connected. */
function connected(channel: QuestionChannel) {
  const end = new AbortController();
  ends.push(end);
  const stream = channel.watch(end.signal);
  const next = () => stream.next().then(item => item.value!);
  const first = next();
  first.catch(() => {});
  return { end, first, next };
}

test('without a controller the answer is unknown at once', async () => {
  expect(await new QuestionChannel().whoUses([FILE, DOMAIN], never)).toEqual(
    [FILE, DOMAIN].map(() => ({ kind: 'unknown', reason: 'no controller is connected to this node' })),
  );
});

test('a question reaches the controller and its answer whoever asked, also when several are open', async () => {
  const channel = new QuestionChannel();
  const { first, next } = connected(channel);
  const asked = [channel.whoUses([FILE], never), channel.whoUses([FILE, DOMAIN], never)];
  const [one, two] = [await first, await next()];
  expect([one.things, two.things]).toEqual([[FILE], [FILE, DOMAIN]]);
  channel.answer(two.id, [UNUSED, USED]);
  channel.answer(one.id, [USED]);
  expect(await Promise.all(asked)).toEqual([[USED], [UNUSED, USED]]);
});

test('many things are asked for in parts and answered in their order', async () => {
  const channel = new QuestionChannel();
  const { first, next } = connected(channel);
  const things = Array.from({ length: 501 }, (_, index): Thing => ({ kind: 'domain', id: `${index}` }));
  const asked = channel.whoUses(things, never);
  const part = await first;
  channel.answer(
    part.id,
    part.things.map(() => UNUSED),
  );
  channel.answer((await next()).id, [USED]);
  const answers = await asked;
  expect([answers.length, answers[499], answers[500]]).toEqual([501, UNUSED, USED]);
});

test('a controller that goes away, or says nothing, or too little, leaves it unknown', async () => {
  const channel = new QuestionChannel({ limitMs: 50 });
  const gone = connected(channel);
  const asked = channel.whoUses([FILE], never);
  await gone.first;
  gone.end.abort();
  await gone.next().catch(() => {});
  expect(await asked).toEqual([{ kind: 'unknown', reason: 'the connection to the controller was lost' }]);

  const { first, next } = connected(channel);
  const late = await channel.whoUses([FILE], never);
  expect(late).toEqual([{ kind: 'unknown', reason: 'the controller did not answer within 0.05 seconds' }]);
  channel.answer((await first).id, [UNUSED]);

  const short = channel.whoUses([FILE, DOMAIN], never);
  channel.answer((await next()).id, [UNUSED]);
  expect(await short).toEqual([0, 1].map(() => ({ kind: 'unknown', reason: 'the answer is short' })));
});

test('the latest controller is asked; when it goes away, the one before', async () => {
  const channel = new QuestionChannel();
  const old = connected(channel);
  const young = connected(channel);
  const asked = channel.whoUses([FILE], never);
  channel.answer((await young.first).id, [UNUSED]);
  expect(await asked).toEqual([UNUSED]);
  young.end.abort();
  await young.next().catch(() => {});
  const again = channel.whoUses([FILE], never);
  channel.answer((await old.first).id, [USED]);
  expect(await again).toEqual([USED]);
});

test('who asks may give up', async () => {
  const channel = new QuestionChannel();
  connected(channel);
  const end = new AbortController();
  const asked = channel.whoUses([FILE], end.signal);
  end.abort();
  await expect(asked).rejects.toMatchObject({ msgKey: 'canceled' });
  await expect(channel.whoUses([FILE], end.signal)).rejects.toMatchObject({ msgKey: 'canceled' });
});

describe('right after the start', () => {
  test('the first controller is waited for', async () => {
    const channel = new QuestionChannel({ firstMs: 60_000 });
    const waiting = channel.untilController(never);
    expect(await channel.whoUses([DOMAIN], never)).toMatchObject([{ kind: 'unknown' }]);
    const { first } = connected(channel);
    await waiting;
    const asked = channel.whoUses([DOMAIN], never);
    channel.answer((await first).id, [USED]);
    expect(await asked).toEqual([USED]);
  });

  test('not for ever, nor again when it went away', async () => {
    await new QuestionChannel({ firstMs: 20 }).untilController(never);
    const channel = new QuestionChannel({ firstMs: 60_000 });
    const { end, first } = connected(channel);
    end.abort();
    await first.catch(() => {});
    await channel.untilController(never);
  });

  test('who waits may give up', async () => {
    const end = new AbortController();
    const waiting = new QuestionChannel({ firstMs: 60_000 }).untilController(end.signal);
    end.abort();
    await expect(waiting).rejects.toMatchObject({ msgKey: 'canceled' });
  });
});
