/** Long-lived tokens of programs: of one user, or all that the viewer may see. */
import { ClipboardCopy, Modal, ModalBody, ModalHeader } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { answer, api, list, newKey, type Schemas, SELDOM, type Token } from '../api/client.ts';
import { useSession } from '../session.tsx';
import { useWords } from '../texts/index.tsx';
import { ActionButton, ActionMenu } from './actions.tsx';
import { Confirm, Dialog } from './confirm.tsx';
import { NumberField, TextField } from './fields.tsx';
import { Empty } from './list.tsx';
import { Shown } from './shown.tsx';

const MOST = 1000;
const DEFAULT_DAYS = 90;

/** @param of only those of the user with this number */
export function TokenList({ of }: { of?: number }) {
  const { texts } = useWords();
  const isOwn = useSession().session.user.id === of;
  const [isMaking, setMaking] = useState(false);
  const query = useQuery({
    queryKey: ['tokens'],
    queryFn: () => list<Token>(api.GET('/api/tokens/', { params: { query: { limit: MOST } } })),
    ...SELDOM,
  });
  return (
    <>
      {isOwn && (
        <div className="vk-block">
          <ActionButton action={{ key: 'make', label: texts.tokens.make, act: () => setMaking(true) }} />
        </div>
      )}
      {isMaking && <MakeToken close={() => setMaking(false)} />}
      <Shown query={query}>
        {({ results }) => {
          const shown = results.filter(({ user }) => of === undefined || user.id === of);
          return shown.length === 0 ? <Empty title={texts.tokens.empty} /> : <TokenTable tokens={shown} />;
        }}
      </Shown>
    </>
  );
}

function TokenTable({ tokens }: { tokens: readonly Token[] }) {
  const { texts, format } = useWords();
  const words = texts.tokens;
  const client = useQueryClient();
  const [leaving, setLeaving] = useState<Token | undefined>();
  const revoke = async ({ id }: Token) => {
    await answer(api.POST('/api/tokens/{id}/remove/', { params: { path: { id } }, body: {} }));
    await client.invalidateQueries({ queryKey: ['tokens'] });
  };
  return (
    <>
      <Table aria-label={words.title} variant="compact">
        <Thead>
          <Tr>
            <Th modifier="wrap">{texts.common.name}</Th>
            <Th modifier="wrap">{texts.users.username}</Th>
            <Th modifier="wrap">{words.expires}</Th>
            <Th modifier="wrap">{words.lastUsed}</Th>
            <Th screenReaderText={texts.list.actions} />
          </Tr>
        </Thead>
        <Tbody>
          {tokens.map(token => (
            <Tr key={token.id}>
              <Td dataLabel={texts.common.name} className="vk-name">
                {token.name}
              </Td>
              <Td dataLabel={texts.users.username}>{token.user.username}</Td>
              <Td dataLabel={words.expires}>{format.time(token.expires_on)}</Td>
              <Td dataLabel={words.lastUsed}>{format.age(token.last_used)}</Td>
              <Td isActionCell>
                <ActionMenu
                  of={token.name}
                  actions={[
                    { key: 'remove', label: words.revoke, isDanger: true, act: () => setLeaving(token) },
                  ]}
                />
              </Td>
            </Tr>
          ))}
        </Tbody>
      </Table>
      {leaving && (
        <Confirm
          title={words.revokeTitle(leaving.name)}
          text={words.revokeText}
          submit={words.revoke}
          act={() => revoke(leaving)}
          close={() => setLeaving(undefined)}
        />
      )}
    </>
  );
}

function MakeToken({ close }: { close: () => void }) {
  const { texts } = useWords();
  const words = texts.tokens;
  const client = useQueryClient();
  const [name, setName] = useState('');
  const [days, setDays] = useState(DEFAULT_DAYS);
  const [password, setPassword] = useState('');
  const [key] = useState(newKey);
  const [made, setMade] = useState<Schemas['NewToken'] | undefined>();
  if (made !== undefined) return <ShownOnce token={made} close={close} />;
  const make = async () => {
    setMade(await answer(api.POST('/api/tokens/', { body: { name, days, password, idempotency_key: key } })));
    setPassword('');
    await client.invalidateQueries({ queryKey: ['tokens'] });
  };
  return (
    <Dialog
      title={words.make}
      submit={words.make}
      isReady={name !== '' && password !== ''}
      act={make}
      close={close}
      // its text stands in its place
      done={() => {}}
    >
      {fault => (
        <>
          <TextField
            id="token-name"
            label={words.what}
            isRequired
            maxLength={255}
            value={name}
            error={fault('name')}
            change={setName}
          />
          <NumberField
            id="token-days"
            label={words.days}
            min={1}
            value={days}
            error={fault('days')}
            change={setDays}
          />
          <TextField
            id="token-password"
            type="password"
            autoComplete="current-password"
            label={words.password}
            isRequired
            value={password}
            error={fault('password')}
            change={setPassword}
          />
        </>
      )}
    </Dialog>
  );
}

function ShownOnce({ token, close }: { token: Schemas['NewToken']; close: () => void }) {
  const { texts, format } = useWords();
  const words = texts.tokens;
  return (
    <Modal variant="medium" isOpen onClose={close} aria-label={words.make}>
      <ModalHeader title={token.name} />
      <ModalBody>
        <p>{words.once}</p>
        <ClipboardCopy
          isReadOnly
          textAriaLabel={words.text}
          hoverTip={texts.common.copy}
          clickTip={texts.common.copied}
        >
          {token.token}
        </ClipboardCopy>
        <p className="vk-small">{texts.nodes.until(format.time(token.expires_on))}</p>
      </ModalBody>
    </Modal>
  );
}
