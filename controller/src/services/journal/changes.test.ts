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

test('a listener hears until it unsubscribes', () => {
  const feed = new ChangeFeed();
  const heard: string[] = [];
  const end = feed.subscribe(one => heard.push(one.entityId));
  feed.publish(change('a'));
  end();
  feed.publish(change('b'));
  expect(heard).toEqual(['a']);
});
