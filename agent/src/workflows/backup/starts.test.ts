import { EventEmitter } from 'node:events';
import { expect, test } from '@jest/globals';
import { Libvirt } from '@virtkeep/node-libvirt';
import { watchStarts } from './starts.ts';

type Told = readonly [string, object];

const lifecycle = (uuid: string, event: string): Told => ['lifecycle', { uuid, name: 'vm', event }];

function watched(connected = true) {
  const emitter = new EventEmitter();
  const libvirt = new Libvirt({ connected } as never, emitter as never);
  return { emitter, watch: watchStarts(libvirt, 'a') };
}

test.each<[string, Told, string]>([
  ['a start is noticed', lifecycle('a', 'started'), 'started'],
  ['and time without libvirt, in which there may have been one', ['closed', { reason: '' }], 'lost'],
])('%s', (_name, event, text) => {
  const { emitter, watch } = watched();
  expect(watch.doubt()).toBeNull();
  emitter.emit(...event);
  expect(watch.doubt()).toContain(text);
  watch.end();
});

test('other domains and other events say nothing, nor does what comes after the end', () => {
  const { emitter, watch } = watched();
  emitter.emit(...lifecycle('b', 'started'));
  // of a start that failed, say, which an image that is being read may bring about
  emitter.emit(...lifecycle('a', 'stopped'));
  emitter.emit(...lifecycle('a', 'defined'));
  watch.end();
  emitter.emit(...lifecycle('a', 'started'));
  expect(watch.doubt()).toBeNull();
  expect(emitter.eventNames()).toEqual([]);
});

test('without a connection nothing is known from the beginning', () => {
  expect(watched(false).watch.doubt()).toContain('lost');
});
