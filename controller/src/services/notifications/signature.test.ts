import { expect, test } from '@jest/globals';
import { signatureHeaders } from './signature.ts';

// the published example of the convention
const EXAMPLE = {
  secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
  id: 'msg_p5jXN8AQM9LWM0D4loKWxJek',
  now: new Date(1_614_265_330_000),
  body: '{"test": 2432232314}',
};

test('it is what the public convention says', () => {
  const { secret, ...parts } = EXAMPLE;
  expect(signatureHeaders(secret, parts)).toEqual({
    'webhook-id': 'msg_p5jXN8AQM9LWM0D4loKWxJek',
    'webhook-timestamp': '1614265330',
    'webhook-signature': 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
  });
});

test('id, time, body and secret all count', () => {
  const { secret, ...parts } = EXAMPLE;
  const signatures = [
    signatureHeaders(secret, parts),
    signatureHeaders('another', parts),
    signatureHeaders(secret, { ...parts, id: 'x' }),
    signatureHeaders(secret, { ...parts, now: new Date(parts.now.getTime() + 1000) }),
    signatureHeaders(secret, { ...parts, body: '{}' }),
  ].map(headers => headers['webhook-signature']);
  expect(new Set(signatures).size).toBe(signatures.length);
});
