// What a person does at the platform before the connection, from docs/channels.
import { texts } from '$lib/i18n.svelte';

const t = texts({
  en: {
    telegram: 'Write /newbot to @BotFather in Telegram, and copy the token.\nEnter who may write to the bot: ids, or names such as @anna.\nAfter the connection, write to the bot. If you are not allowed, its reply has your id.',
    webhook: 'Choose a secret of at least 16 characters: both sides sign with it.\nEnter the address to which replies are posted.\nPost messages to https://<bridge>/webhook/<id of the account>.',
    irc: 'Register a nick with the services of the network, if it has any.\nEnter the server, the nick and the channels to join.\nWrite to the nick. If you are not allowed, its reply has the name to enter.',
    discord: 'Create an application at discord.com/developers, and add a bot to it.\nSwitch on its Message Content Intent, and copy its token, without the word Bot.\nInvite the bot with the scope bot and permissions to view channels, send messages, attach files, add reactions and read the history.',
    slack: 'Create an app at api.slack.com/apps with the bot scopes chat:write, im:history, channels:history, groups:history, files:read, files:write, reactions:write and pins:write.\nSubscribe to the events message.im, message.channels and message.groups, install the app, and copy the token xoxb-….\nSwitch Socket Mode on, and create a token with connections:write: xapp-…. Or use the Events API with the Signing Secret.',
    matrix: 'Register a user for the assistant on the homeserver.\nSign in once as this user, and copy the access token.\nAfter the connection, invite the user into a room.',
    email: 'Make a mailbox for the assistant.\nCreate an app password if the provider has them.\nEnter the servers, and who may write: addresses, or a domain such as @example.com.',
    whatsapp: 'In Meta’s dashboard, create an app with WhatsApp, and a system user with a permanent token.\nEnter the id of the number (not the number), the app secret, and a verify token of your own of at least 16 characters.\nAfter the connection, set the webhook to https://<bridge>/whatsapp/<id of the account>, and subscribe to messages.',
    widget: 'Choose a secret of at least 16 characters.\nEnter the sites that show the widget, and * for all visitors.\nAfter the connection, write the script https://<bridge>/widget/<id of the account>.js into the pages.',
  },
  zh: {
    telegram: '在 Telegram 中向 @BotFather 发送 /newbot，并复制令牌。\n填写谁可以给机器人写消息：ID，或 @anna 这样的名称。\n连接后给机器人写消息。如果您未被允许，它的回复中有您的 ID。',
    webhook: '选择至少 16 个字符的密钥：双方都用它签名。\n填写接收回复的地址。\n将消息 POST 到 https://<bridge>/webhook/<账号 ID>。',
    irc: '如果网络提供服务，请先注册昵称。\n填写服务器、昵称和要加入的频道。\n给该昵称写消息。如果您未被允许，它的回复中有应填写的名称。',
    discord: '在 discord.com/developers 创建应用，并添加机器人。\n开启 Message Content Intent，复制令牌（不含 Bot 一词）。\n以 bot 范围邀请机器人，并授予查看频道、发送消息、附加文件、添加回应和读取历史的权限。',
    slack: '在 api.slack.com/apps 创建应用，机器人范围为 chat:write、im:history、channels:history、groups:history、files:read、files:write、reactions:write 和 pins:write。\n订阅事件 message.im、message.channels 和 message.groups，安装应用，并复制令牌 xoxb-…。\n开启 Socket Mode，并创建带 connections:write 的令牌 xapp-…；或使用 Events API 和 Signing Secret。',
    matrix: '在主服务器上为助手注册用户。\n以该用户登录一次，复制访问令牌。\n连接后邀请该用户进入房间。',
    email: '为助手建立邮箱。\n如果服务商支持，请创建应用专用密码。\n填写服务器，以及谁可以写信：地址，或 @example.com 这样的域名。',
    whatsapp: '在 Meta 控制台创建带 WhatsApp 的应用，以及拥有永久令牌的系统用户。\n填写号码的 ID（不是号码本身）、应用密钥，以及至少 16 个字符的自定义验证令牌。\n连接后将 webhook 设为 https://<bridge>/whatsapp/<账号 ID>，并订阅 messages。',
    widget: '选择至少 16 个字符的密钥。\n填写显示组件的网站；* 表示所有访客。\n连接后将脚本 https://<bridge>/widget/<账号 ID>.js 写入网页。',
  },
});

const KINDS = ['telegram', 'webhook', 'irc', 'discord', 'slack', 'matrix', 'email', 'whatsapp', 'widget'] as const;

export function stepsOf(channel: string): string[] {
  const kind = KINDS.find((one) => one === channel);
  return kind ? t(kind).split('\n') : [];
}
