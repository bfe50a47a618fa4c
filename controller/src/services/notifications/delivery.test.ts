import { expect, test } from '@jest/globals';
import { safeReason } from './delivery.ts';

test('a reason holds no secret, in plain or as base64, and no line break', () => {
  const echoed = `535 no: opensesame ${Buffer.from('opensesame').toString('base64')} ${Buffer.from('\0me\0opensesame').toString('base64')}\r\nBcc: x\u001b[2J`;
  expect(safeReason(echoed, ['opensesame', '\0me\0opensesame'])).toBe(
    '535 no: [redacted] [redacted] [redacted] Bcc: x [2J',
  );
});

test('an empty secret hides nothing, and a long reason is cut', () => {
  expect(safeReason('plain', [''])).toBe('plain');
  expect(safeReason('x'.repeat(5000), [])).toHaveLength(300);
});
