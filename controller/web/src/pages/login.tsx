import {
  Alert,
  Button,
  Card,
  CardBody,
  CardTitle,
  Form,
  FormGroup,
  TextInput,
  Title,
} from '@patternfly/react-core';
import { type FormEvent, useEffect, useState } from 'react';
import type { Session } from '../api/client.ts';
import { Failure } from '../parts/shown.tsx';
import { useWords } from '../texts/index.tsx';

interface LoginPageProps {
  /** The login that has ended by itself, if one has. */
  lapsed: Session | null;
  login: (username: string, password: string) => Promise<void>;
}

/** Stands in place of every page while nobody is logged in: the address stays, and nobody is sent anywhere. */
export function LoginPage({ login, lapsed }: LoginPageProps) {
  const { texts, language, choose } = useWords();
  const words = texts.login;
  const [username, setUsername] = useState(lapsed?.user.username ?? '');
  const [password, setPassword] = useState('');
  const [error, setError] = useState<unknown>(undefined);
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    document.title = `${words.submit} · ${texts.product}`;
  }, [words, texts]);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      await login(username, password);
    } catch (refused) {
      setError(refused);
      setPassword('');
      setBusy(false);
    }
  };
  return (
    <main className="vk-login">
      <Card isLarge>
        <CardTitle>
          <Title headingLevel="h1" size="xl">
            {words.title}
          </Title>
        </CardTitle>
        <CardBody>
          <Form onSubmit={event => void submit(event)}>
            {lapsed !== null && <Alert variant="info" isInline title={texts.live.loggedOut} role="status" />}
            {error !== undefined && <Failure error={error} />}
            <FormGroup label={words.username} isRequired fieldId="username">
              <TextInput
                id="username"
                name="username"
                autoComplete="username"
                autoFocus
                isRequired
                value={username}
                onChange={(_event, value) => setUsername(value)}
              />
            </FormGroup>
            <FormGroup label={words.password} isRequired fieldId="password">
              <TextInput
                id="password"
                name="password"
                type="password"
                autoComplete="current-password"
                isRequired
                value={password}
                onChange={(_event, value) => setPassword(value)}
              />
            </FormGroup>
            <Button
              type="submit"
              isBlock
              isDisabled={isBusy}
              isLoading={isBusy}
              spinnerAriaLabel={words.busy}
            >
              {words.submit}
            </Button>
            <Button variant="link" onClick={() => choose(language === 'en' ? 'ru' : 'en')}>
              <span lang={language === 'en' ? 'ru' : 'en'}>{texts.account.language}</span>
            </Button>
          </Form>
        </CardBody>
      </Card>
    </main>
  );
}
