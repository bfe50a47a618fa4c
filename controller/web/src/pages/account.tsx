/** Of who is logged in: their password, their logins, their tokens. */
import { Card, CardBody, CardTitle, Content } from '@patternfly/react-core';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { answer, api } from '../api/client.ts';
import { ActionButton } from '../parts/actions.tsx';
import { Confirm, Dialog } from '../parts/confirm.tsx';
import { TextField } from '../parts/fields.tsx';
import { LoginList } from '../parts/logins.tsx';
import { ViewPage } from '../parts/page.tsx';
import { TokenList } from '../parts/tokens.tsx';
import { SESSION_KEY, useSession } from '../session.tsx';
import { useWords } from '../texts/index.tsx';

export default function AccountPage() {
  const { texts, format } = useWords();
  const words = texts.account;
  const { session } = useSession();
  const [asks, setAsks] = useState<'password' | 'end' | undefined>();
  const close = () => setAsks(undefined);
  const change = useOwnChange();
  const end = () => change({ end_sessions: true });
  return (
    <ViewPage
      title={words.title}
      about={words.signedInAs(session.user.username, texts.roles[session.role] ?? session.role)}
    >
      <Card className="vk-block">
        <CardTitle component="h2">{words.login}</CardTitle>
        <CardBody>
          <Content component="p">{texts.users.roleTexts[session.role]}</Content>
          <Content component="p">{words.until(format.time(session.expires_on))}</Content>
          <span className="vk-row">
            <ActionButton
              action={{ key: 'password', label: words.changePassword, act: () => setAsks('password') }}
            />
            <ActionButton
              action={{ key: 'end', label: words.endAll, isDanger: true, act: () => setAsks('end') }}
            />
          </span>
        </CardBody>
      </Card>
      <Card className="vk-block">
        <CardTitle component="h2">{texts.logins.title}</CardTitle>
        <CardBody>
          <Content component="p">{texts.logins.about}</Content>
          <LoginList of={session.user.id} />
        </CardBody>
      </Card>
      <Card className="vk-block">
        <CardTitle component="h2">{texts.tokens.title}</CardTitle>
        <CardBody>
          <Content component="p">{texts.tokens.about}</Content>
          <TokenList of={session.user.id} />
        </CardBody>
      </Card>
      {asks === 'password' && <ChangePassword close={close} />}
      {asks === 'end' && (
        <Confirm
          title={words.endAllTitle}
          text={words.endAllText}
          submit={words.endAll}
          act={end}
          close={close}
        />
      )}
    </ViewPage>
  );
}

interface OwnChanges {
  old_password?: string;
  password?: string;
  end_sessions?: boolean;
}

/** Of who is logged in: with their logins this one ends, too, and the page asks for the password again. */
function useOwnChange() {
  const client = useQueryClient();
  const { id } = useSession().session.user;
  return async (body: OwnChanges) => {
    await answer(api.PUT('/api/users/{id}/', { params: { path: { id } }, body }));
    await client.invalidateQueries({ queryKey: SESSION_KEY });
  };
}

function ChangePassword({ close }: { close: () => void }) {
  const { texts } = useWords();
  const change = useOwnChange();
  const words = texts.account;
  const [old_password, setOld] = useState('');
  const [password, setNew] = useState('');
  const [again, setAgain] = useState('');
  const isSame = again === password;
  const act = () => change({ old_password, password });
  return (
    <Dialog
      title={words.changePassword}
      submit={words.changePassword}
      isReady={old_password !== '' && password !== '' && isSame}
      act={act}
      close={close}
    >
      {fault => (
        <>
          <TextField
            id="old-password"
            type="password"
            autoComplete="current-password"
            label={words.oldPassword}
            isRequired
            value={old_password}
            error={fault('old_password')}
            change={setOld}
          />
          <TextField
            id="new-password"
            type="password"
            autoComplete="new-password"
            label={texts.users.newPassword}
            help={`${texts.users.passwordHelp} ${words.passwordText}`}
            isRequired
            value={password}
            error={fault('password')}
            change={setNew}
          />
          <TextField
            id="new-password-again"
            type="password"
            autoComplete="new-password"
            label={words.again}
            isRequired
            value={again}
            error={again === '' || isSame ? undefined : words.differs}
            change={setAgain}
          />
        </>
      )}
    </Dialog>
  );
}
