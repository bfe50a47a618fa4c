import { expect, test } from '@jest/globals';
import { argumentsOf, base64Of, bytesOf, firstOf, isComplete, valuesOf } from './arguments.ts';

test('what is written becomes what the agent takes; what is empty is left out', () => {
  const known = argumentsOf('guest-exec')!;
  expect(isComplete(known, firstOf(known))).toBe(false);
  const written = { ...firstOf(known), path: '/bin/ls', arg: '-l\n/tmp dir\n', 'input-data': 'ä' };
  expect(isComplete(known, written)).toBe(true);
  expect(valuesOf(known, written)).toEqual({
    path: '/bin/ls',
    arg: ['-l', '/tmp dir'],
    'input-data': 'w6Q=',
    'capture-output': true,
  });
});

test('a number that was written and deleted is not sent, and what is none is not taken for one', () => {
  const known = argumentsOf('guest-set-time')!;
  expect([valuesOf(known, { time: '' }), valuesOf(known, { time: '17' })]).toEqual([{}, { time: 17 }]);
  expect(['', '17', '-1', '1.5', 'now'].map(time => isComplete(known, { time }))).toEqual([
    ...[true, true, true, false, false],
  ]);
});

test('commands without arguments are known, later ones are not', () => {
  expect([
    argumentsOf('guest-get-osinfo'),
    argumentsOf('guest-ping'),
    argumentsOf('guest-new-thing'),
  ]).toEqual([...[[], [], undefined]]);
});

test('bytes go and come as base64, however many', () => {
  const bytes = Uint8Array.from({ length: 100_000 }, (_, index) => index % 256);
  expect(bytesOf(base64Of(bytes))).toEqual(bytes);
});
