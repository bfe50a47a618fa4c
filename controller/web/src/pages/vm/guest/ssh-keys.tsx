import { Button, Form } from '@patternfly/react-core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { AT_ONCE, answer, api, begun, type Domain, keyFor } from '../../../api/client.ts';
import { Confirm } from '../../../parts/confirm.tsx';
import { LongTextField, TextField } from '../../../parts/fields.tsx';
import { Failure, Waiting } from '../../../parts/shown.tsx';
import { useToasts } from '../../../parts/toasts.tsx';
import { useWords } from '../../../texts/index.tsx';

const RUNNING = 3;

/** Who may log in to the guest by key: shown of one that runs, changed in one that is off, too. */
export function SshKeys({ domain }: { domain: Domain }) {
  const { texts } = useWords();
  const words = texts.guest;
  const { attempt, started } = useToasts();
  const [user, setUser] = useState('root');
  const [shown, setShown] = useState<string | undefined>();
  const [key, setKey] = useState('');
  const [leaving, setLeaving] = useState<string | undefined>();
  const { id } = domain;
  const query = useQuery({
    queryKey: ['domains', 'keys', id, shown],
    queryFn: () =>
      answer(
        api.GET('/api/domains/{id}/ssh-keys/', {
          params: { path: { id }, query: { ssh_user: shown ?? '' } },
        }),
      ),
    enabled: shown !== undefined,
    retry: false,
  });
  const change = async (action: 'add' | 'remove', ssh_key: string) => {
    const path = action === 'add' ? 'ssh-keys' : 'ssh-keys/remove';
    const options = {
      params: { path: { id }, query: AT_ONCE },
      body: {
        ssh_user: user,
        ssh_key,
        idempotency_key: keyFor(`/api/domains/${id}/${path}/`, `${user} ${ssh_key}`),
      },
    };
    const call =
      action === 'add'
        ? api.POST('/api/domains/{id}/ssh-keys/', options)
        : api.POST('/api/domains/{id}/ssh-keys/remove/', options);
    started(await begun(call));
    if (action === 'add') setKey('');
  };
  return (
    <Form onSubmit={event => event.preventDefault()}>
      <TextField
        id="ssh-user"
        label={words.sshUser}
        isRequired
        maxLength={256}
        value={user}
        change={setUser}
      />
      <span>
        <Button
          variant="secondary"
          isDisabled={user === '' || domain.user_power_state !== RUNNING}
          onClick={() => (shown === user ? void query.refetch() : setShown(user))}
        >
          {words.showKeys}
        </Button>
      </span>
      {shown !== undefined && query.isFetching && <Waiting />}
      {query.isError && <Failure error={query.error} />}
      {query.data && (
        <ul className="vk-list" aria-label={words.sshKeys}>
          {query.data.keys.length === 0 && <li>{words.noKeys}</li>}
          {query.data.keys.map(line => (
            <li key={line} className="vk-row">
              <code className="vk-name">{line}</code>
              <Button
                size="sm"
                variant="secondary"
                aria-label={words.removeKeyOf(line.slice(-40))}
                onClick={() => setLeaving(line)}
              >
                {words.removeKey}
              </Button>
            </li>
          ))}
        </ul>
      )}
      <LongTextField
        id="ssh-key"
        label={words.newKey}
        help={words.newKeyHelp}
        rows={3}
        value={key}
        change={setKey}
      />
      <span>
        <Button
          variant="secondary"
          isDisabled={key.trim() === '' || user === ''}
          onClick={() => attempt(() => change('add', key.trim()))}
        >
          {words.addKey}
        </Button>
      </span>
      {leaving !== undefined && (
        <Confirm
          title={words.removeKeyTitle(user)}
          text={leaving}
          submit={words.removeKey}
          act={() => change('remove', leaving)}
          close={() => setLeaving(undefined)}
        />
      )}
    </Form>
  );
}
