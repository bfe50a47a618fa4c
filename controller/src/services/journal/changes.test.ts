import { expect, test } from '@jest/globals';
import { ChangeFeed } from './changes.ts';

const change = (entityId: string) => ({ kind: 'task', entityId, action: 'changed' as const });

test('gives what came after an id, in order, while it is kept', () => {
  const feed = new ChangeFeed();
  const start = feed.lastId;
  expect(feed.since(start)).toEqual([]);
  for (const id of ['a', 'b', 'c']) feed.publish(change(id));
  expect(feed.since(start)?.map(one => one.entityId)).toEqual(['a', 'b', 'c']);
  const second = feed.since(start)![1]!.id;
  expect(feed.since(second)?.map(one => one.entityId)).toEqual(['c']);
  for (let number = 0; number < 5000; number += 1) feed.publish(change(`${number}`));
  expect(feed.since(start)).toBeNull();
  expect(feed.since(feed.lastId)).toEqual([]);
});

test.each(['', 'nonsense', 'otherrun-1', '-', 'x-99999'])('does not know the id "%s"', id => {
  expect(new ChangeFeed().since(id)).toBeNull();
});

/** What a listener is told, as ids in the order of their numbers, a list for each telling. */
function listenTo(feed: ChangeFeed): { told: string[][]; end(): void } {
  const told: string[][] = [];
  const end = feed.subscribe(changes =>
    told.push(changes.map(({ id, entityId }) => `${entityId}${id.split('-')[1]}`)),
  );
  return { told, end };
}

test('a listener hears until it unsubscribes', () => {
  const feed = new ChangeFeed();
  const { told, end } = listenTo(feed);
  feed.publish(change('a'));
  feed.tell();
  end();
  feed.publish(change('b'));
  feed.tell();
  expect(told).toEqual([['a1']]);
});

test('tells what came together at once, and of two that say the same the newer', async () => {
  const feed = new ChangeFeed();
  const { told } = listenTo(feed);
  for (const id of ['a', 'b', 'a', 'c']) feed.publish(change(id));
  feed.publish({ ...change('b'), action: 'removed' });
  expect(told).toEqual([]);
  while (told.length === 0) await new Promise(resolve => setTimeout(resolve, 1));
  expect(told).toEqual([['b2', 'a3', 'c4', 'b5']]);
});

test('tells many without waiting', () => {
  const feed = new ChangeFeed();
  const { told } = listenTo(feed);
  for (let number = 0; number < 100; number += 1) feed.publish(change('a'));
  expect(told).toEqual([['a64']]);
});

test('one that begins to listen hears nothing of what was before', () => {
  const feed = new ChangeFeed();
  const first = listenTo(feed);
  feed.publish(change('a'));
  const second = listenTo(feed);
  feed.publish(change('b'));
  feed.tell();
  expect([first.told, second.told]).toEqual([[['a1'], ['b2']], [['b2']]]);
});
