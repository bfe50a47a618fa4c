import { expect, jest, test } from '@jest/globals';
import { TokenSigner } from './jwt.ts';

const now = Date.UTC(2026, 0, 1);
const claims = {
  userId: 1,
  username: 'anna',
  jti: 'a',
  family: 'a',
  origIat: new Date(now),
  expiresOn: new Date(now + 60_000),
  integration: false,
};
const refused = (msgKey: string) => expect.objectContaining({ msgKey });

test('a token that was found right is so until its end, and no other is', async () => {
  jest.useFakeTimers({ now, doNotFake: ['nextTick', 'queueMicrotask', 'setImmediate'] });
  try {
    const signer = new TokenSigner(Buffer.alloc(64, 1));
    const token = await signer.sign(claims);
    for (let time = 0; time < 2; time++) expect(await signer.verify(token)).toEqual(claims);
    const [head, body, signature] = token.split('.') as [string, string, string];
    const forged = Buffer.from(JSON.stringify({ ...JSON.parse(atob(body)), user_id: 2 })).toString(
      'base64url',
    );
    for (const other of [`${head}.${forged}.${signature}`, `${head}.${body}.`])
      await expect(signer.verify(other)).rejects.toEqual(refused('token_invalid'));
    await expect(new TokenSigner(Buffer.alloc(64, 2)).verify(token)).rejects.toEqual(
      refused('token_invalid'),
    );
    jest.setSystemTime(now + 59_999);
    expect(await signer.verify(token)).toEqual(claims);
    jest.setSystemTime(now + 60_000);
    await expect(signer.verify(token)).rejects.toEqual(refused('token_expired'));
    await expect(new TokenSigner(Buffer.alloc(64, 1)).verify(token)).rejects.toEqual(
      refused('token_expired'),
    );
  } finally {
    jest.useRealTimers();
  }
});
