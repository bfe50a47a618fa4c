import { expect, test } from '@jest/globals';
import { KnownTexts } from './index.ts';

test('a text is read once; one that is different, or could not be read, anew; and what it says is nobody’s to change', () => {
  const reads: string[] = [];
  const texts = new KnownTexts((xml, subject) => {
    reads.push(`${subject} ${xml}`);
    if (xml === 'bad') throw new Error(subject);
    return { disks: [{ path: xml.slice(1) }] };
  });
  expect(texts.of('xa', 'one')).toEqual({ disks: [{ path: 'a' }] });
  expect(texts.of('xa', 'two')).toBe(texts.of('xa', 'one'));
  expect(texts.of('xb', 'one')).toEqual({ disks: [{ path: 'b' }] });
  for (const subject of ['one', 'two']) expect(() => texts.of('bad', subject)).toThrow(subject);
  expect(reads).toEqual(['one xa', 'one xb', 'one bad', 'two bad']);
  expect(() => texts.of('xa', 'one').disks.pop()).toThrow(TypeError);
  expect(() => Object.assign(texts.of('xa', 'one').disks[0]!, { path: '' })).toThrow(TypeError);
});
