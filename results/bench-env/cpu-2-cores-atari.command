ogspr bench env atari:Pong atari:Breakout examples.chase:make --steps 500 --rounds 9
