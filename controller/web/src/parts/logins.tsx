/** The logins of a user, each of which can be ended alone. */
import { Label } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { answer, api, list, SELDOM, type UserSession } from '../api/client.ts';
import { SESSION_KEY } from '../session.tsx';
import { useWords } from '../texts/index.tsx';
import { ActionMenu } from './actions.tsx';
import { Confirm } from './confirm.tsx';
import { Empty } from './list.tsx';
import { Shown } from './shown.tsx';

const MOST = 1000;

/** @param of number of the user */
export function LoginList({ of }: { of: number }) {
  const { texts } = useWords();
  const query = useQuery({
    queryKey: ['logins', of],
    queryFn: () =>
      list<UserSession>(
        api.GET('/api/users/{id}/sessions/', { params: { path: { id: of }, query: { limit: MOST } } }),
      ),
    ...SELDOM,
  });
  return (
    <Shown query={query}>
      {({ results }) =>
        results.length === 0 ? <Empty title={texts.logins.empty} /> : <LoginTable logins={results} />
      }
    </Shown>
  );
}

function LoginTable({ logins }: { logins: readonly UserSession[] }) {
  const { texts, format } = useWords();
  const words = texts.logins;
  const client = useQueryClient();
  const [leaving, setLeaving] = useState<UserSession | undefined>();
  const nameOf = ({ client: program, address }: UserSession) =>
    words.name(program || words.unknown, address || words.unknown);
  const end = async ({ id, user, current }: UserSession) => {
    const path = { id: user.id, session: id };
    await answer(api.DELETE('/api/users/{id}/sessions/{session}/', { params: { path } }));
    await client.invalidateQueries({ queryKey: current ? SESSION_KEY : ['logins'] });
  };
  return (
    <>
      <Table aria-label={words.title} variant="compact">
        <Thead>
          <Tr>
            <Th modifier="wrap">{words.client}</Th>
            <Th modifier="wrap">{words.from}</Th>
            <Th modifier="wrap">{words.since}</Th>
            <Th modifier="wrap">{texts.tokens.lastUsed}</Th>
            <Th screenReaderText={texts.list.actions} />
          </Tr>
        </Thead>
        <Tbody>
          {logins.map(login => (
            <Tr key={login.id}>
              <Td dataLabel={words.client} className="vk-name">
                {login.client || words.unknown}{' '}
                {login.current && (
                  <Label isCompact variant="outline" className="vk-state">
                    {words.current}
                  </Label>
                )}
              </Td>
              <Td dataLabel={words.from}>{login.address || words.unknown}</Td>
              <Td dataLabel={words.since}>{format.time(login.created)}</Td>
              <Td dataLabel={texts.tokens.lastUsed}>{format.age(login.last_used)}</Td>
              <Td isActionCell>
                {login.permissions.includes('remove') && (
                  <ActionMenu
                    of={nameOf(login)}
                    actions={[{ key: 'end', label: words.end, isDanger: true, act: () => setLeaving(login) }]}
                  />
                )}
              </Td>
            </Tr>
          ))}
        </Tbody>
      </Table>
      {leaving && (
        <Confirm
          title={words.endTitle(nameOf(leaving))}
          text={leaving.current ? words.endOwnText : words.endText}
          submit={words.end}
          act={() => end(leaving)}
          close={() => setLeaving(undefined)}
        />
      )}
    </>
  );
}
